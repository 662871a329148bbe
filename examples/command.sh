#!/usr/bin/env bash
# What the `headwater` command does with records, topics and groups.
#
# HEADWATER_BOOTSTRAP=127.0.0.1:9092 bash examples/command.sh
set -euo pipefail

headwater topic create visits --partitions 2 --config retention.ms=3600000

headwater produce visits --value home --key alice --header from=web
printf 'bob:cart\ncarol:home\n' | headwater produce visits --key-separator :
headwater produce visits --key bob --tombstone

headwater consume visits --from beginning --until-end --format '%k: %v [%h]' --null -

headwater consume visits --from beginning --until-end --format json | headwater produce copies --format json
headwater consume copies --from -1 --until-end --format json

headwater consume visits --group readers --from beginning --max 3 > /dev/null
headwater group reset readers --topic visits --to-earliest
headwater group reset readers --topic visits --to-time 90m --execute --output json > moved.json

headwater config set topic visits --append cleanup.policy=compact --dry-run
headwater topic records visits --delete-all
headwater cluster status
