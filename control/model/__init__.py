"""Frozen values of the metadata log. They hold no behaviour but checks of their own shape.

START HERE: `entries.Entry` is what the log replicates, `commands.Command` what it says, `state.MetadataState`
what follows from all entries, `results.Result` what one entry gave. `conversions` opens older states.
"""
