"""Cohorts of one node: what the leader does, and what the gates of this node are told and tell.

START HERE: `parts` builds it all. `state_machines.cohorts` decides; the modules here have sockets and tasks.
`handlers.cohort_members` serves members.

    leader         the leader's loop: plans, removals of silent members, marks
    heard          SESSIONS: which members this node hears, once a second to the leader
    told           what gates of this node have reached: to the leader, and to owners of children
    figures        figures of gates, from the nodes that own them
    parked         parked ranges of this node's gates: lists, actions, fates of exports
    pushes         ASSIGN: members at this node whose slices changed
    engine         what the engine does for cohorts
"""
