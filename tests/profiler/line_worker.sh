#!/bin/sh
# A worker for worker_pool_test: answers a line with its text and the worker's pid.
while read -r word rest; do
  case $word in
    echo) echo "$rest $$" ;;
    die) exit 3 ;;
    hang) exec sleep 600 ;;
  esac
done
