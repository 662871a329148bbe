#!/usr/bin/env bash
# What the `headwater` command does with records, topics and groups.
#
# HEADWATER_BOOTSTRAP=127.0.0.1:9092 bash examples/command.sh
set -euo pipefail

headwater cluster status --wait 30

headwater topic create visits --partitions 2 --config retention.ms=3600000

# Records
headwater produce visits --value home --key alice --header from=web
printf 'bob:cart\ncarol:home\n' | headwater produce visits --key-separator :
headwater produce visits --key bob --tombstone

headwater consume visits --from beginning --until-end --format '%k: %v [%h]' --null -

headwater consume visits --from beginning --until-end --format json | headwater produce copies --format json
headwater consume copies --from -1 --until-end --format json

echo '<h1>Welcome</h1>' > index.html
headwater produce pages --file index.html --whole-file --key index
find . -type f -print0 | headwater produce files --delimiter '\0'

headwater consume visits --from 2h --to 1h
headwater consume visits:0 --from 0 --to 100 --timeout 1
headwater consume visits copies --from beginning --until-end --format '%t %v'
headwater consume 'vis.*' --regex --from beginning --until-end

# Groups
headwater consume visits --group readers --from beginning --max 3 > /dev/null
headwater consume visits --group readers --until-end > /dev/null
headwater group reset readers --topic visits --to-earliest
headwater group reset readers --topic visits --to-time 90m --execute --output json > moved.json
headwater group offsets delete readers --topic visits:0
headwater group delete readers

# Topics and settings
headwater config set topic visits --append cleanup.policy=compact --dry-run
headwater topic records visits --delete-all
headwater topic list --sizes
headwater topic dirs visits

# How fast it is
headwater bench produce load --records 20000 --size 1000
headwater bench produce load --records 5000 --rate 2000 --acks all --output json
headwater bench consume load
