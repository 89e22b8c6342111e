"""Requests between nodes, and dispatch of clients' control requests.

messages         requests and replies at the control address, with their limits
layout_messages  those of layout changes
cohort_messages  those of cohorts
message_base     types that all of them have in common
client           send requests to other nodes
peers            map node ids to addresses, and Raft messages to frames
dispatch         decode clients' control requests, bound them, answer within their deadlines
"""
