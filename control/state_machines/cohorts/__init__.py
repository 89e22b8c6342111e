"""Cohorts (consumer groups): what a leader decides, and what nodes derive from their logs.

START HERE: `coordinator`, the leader's part. Layers, top first; imports run downward only:

    coordinator   one round of a leader: plans, evictions, what owners told of their gates
    plans         when a cohort is planned, and the entries of a plan
    planner       plan(partitions, members, held): the next slice of each member
    liveness      which members are connected, in grace, or silent
    progress      gather what owners tell: partitions that are drained, partitions that have begun
    members       a node's part of JOIN: answer, register in batches, refuse
    gates         a node's rules of each gate that it owns, and the word of other owners
    reports       how often a node tells what the metadata does not have yet
    digests       digests of lists of sessions and of slices

The owner of a partition decides which member reads it, in the partition's own log.
See docs/design/cohorts.md.
"""
