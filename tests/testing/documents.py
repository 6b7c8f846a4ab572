"""Documents that several tests index."""

from __future__ import annotations

NOTE = """\
---
type: Note
title: Lamps
description: How the lamps of the tower are kept.
tags: [tower, light]
---

The lamps burn paraffin.

## Cleaning

Wipe the lenses each morning.

## Notes

Spare wicks are in the cellar.

## Notes

The cellar key hangs by the door.
"""
