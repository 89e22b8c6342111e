"""Asyncio."""
