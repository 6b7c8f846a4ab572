"""What embedders that are servers have in common: trust, patience, canaries, probe, identity."""
