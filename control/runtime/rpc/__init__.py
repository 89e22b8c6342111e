"""Requests between nodes, and dispatch of clients' control requests.

messages    bodies of questions and answers at the control address, with their limits
client      ask other nodes; a timeout raises RequestRefused unless a value may be left out
peers       map node ids to addresses, and Raft messages to frames
dispatch    decode clients' control requests, bound them, answer within their deadlines
"""
