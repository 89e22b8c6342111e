#!/bin/bash
cd /tmp/rf/wt/lead;  
