#!/usr/bin/env bash
# The life of a cluster on one host: made from files as on three hosts, a node killed, all of them
# restarted one by one, a broker added, and a node replaced whose disk was lost.
#
# bash examples/cluster/walkthrough.sh [FIRST_PORT]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
first=${1:-9092}
work=$(mktemp -d)
declare -A pids
trap 'kill "${pids[@]}" 2> /dev/null; wait; rm -rf "$work"' EXIT

port() { echo $((first + 10 * $1)); }      # of a node, for clients
quorum() { echo $((first + 10 * $1 + 1)); } # of a node, for the quorum
servers=127.0.0.1:$(quorum 1),127.0.0.1:$(quorum 2),127.0.0.1:$(quorum 3)
export HEADWATER_BOOTSTRAP=127.0.0.1:$(port 1),127.0.0.1:$(port 2),127.0.0.1:$(port 3)

settings() { # NODE ROLE: what differs from node to node
    echo "node.id=$1"
    echo "controller.quorum.bootstrap.servers=$servers"
    echo "log.dirs=$work/node-$1"
    if [ "$2" = broker ]; then
        echo "listeners=PLAINTEXT://127.0.0.1:$(port "$1")"
    else
        echo "listeners=PLAINTEXT://127.0.0.1:$(port "$1"),CONTROLLER://127.0.0.1:$(quorum "$1")"
    fi
}

configure() { # NODE ROLE: a file of its own, from the one for its role
    grep -v '^advertised' "$here/$2.properties" > "$work/node-$1.properties"
    settings "$1" "$2" >> "$work/node-$1.properties"
}

start() {
    : > "$work/node-$1.out" # at once: it may say that an earlier run was ready
    headwater start --config "$work/node-$1.properties" >> "$work/node-$1.out" 2>&1 &
    pids[$1]=$!
}

until_ready() {
    until grep -q '^ready' "$work/node-$1.out"; do sleep 0.1; done
}

stop() {
    kill "${pids[$1]}"
    wait "${pids[$1]}" || true
}

lose() {
    kill -9 "${pids[$1]}"
    wait "${pids[$1]}" 2> /dev/null || true
}

echo "== three nodes, broker and controller at once"
cluster=$(headwater format --random-uuid)
voters=""
for node in 1 2 3; do
    configure $node combined
    voters+=${voters:+,}$node@127.0.0.1:$(quorum $node):$(headwater format --random-uuid)
done
for node in 1 2 3; do
    headwater format --config "$work/node-$node.properties" --cluster-id "$cluster" \
        --initial-controllers "$voters" > /dev/null
    start $node
done
headwater cluster status --wait 60 > /dev/null
headwater topic create orders --partitions 6
seq 1 1000 | headwater produce orders

echo "== node 2 is killed; nothing is lost"
lose 2
seq 1001 2000 | headwater produce orders
headwater topic records orders | tail -1
start 2
until_ready 2
headwater cluster status --wait 60 > /dev/null

echo "== all nodes are restarted, one after the other"
for node in 1 2 3; do
    stop $node
    start $node
    until_ready $node
    headwater cluster status --wait 60 > /dev/null
done

echo "== a broker is added"
configure 4 broker
headwater format --config "$work/node-4.properties" --cluster-id "$cluster" > /dev/null
start 4
until_ready 4
headwater cluster nodes

echo "== node 3 has lost its disk: it comes back empty, and votes again"
lose 3
rm -rf "$work/node-3"
headwater cluster quorum remove 3 --yes
headwater format --config "$work/node-3.properties" --cluster-id "$cluster" \
    --no-initial-controllers > /dev/null
start 3
until_ready 3
headwater cluster quorum add 3 --bootstrap-controller "$servers" \
    --directory "$(sed -n 's/^directory.id=//p' "$work/node-3/meta.properties")"
headwater cluster status --wait 60 > /dev/null
headwater cluster quorum

echo "== everything is still there"
headwater topic records orders | tail -1
