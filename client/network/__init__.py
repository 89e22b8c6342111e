"""The I/O thread with its connections, requests, and failover to another node.

io_thread   START HERE: the loop; alone uses the sockets      scheduler  its timers
peers       open, serve and close connections to nodes        connection  one socket, answers
peer        a node: addresses, current connection, retries
request     one control or read request with its retries      failover   other nodes instead of silent owners
member      interface of producers to the loop
"""
