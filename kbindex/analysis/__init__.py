"""Text → the terms under which it is stored and found: words, languages, stems."""
