"""Metrics of a node, and their text format. The admin API serves them at `/metrics`.

metric_definitions    every metric: name, kind, help and value; a new one goes here
cohort_metrics        metrics of cohorts
layout_metrics        metrics of layouts and of layout changes
prometheus_text       Prometheus' text format
"""
