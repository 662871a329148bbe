"""The fixtures that ship with the package, as somebody else's tests see them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headwater.testing import EmbeddedBroker, MakeHeadwaterBroker

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(600)  # each starts pytest, which a busy machine does slowly


def test_the_broker_is_there_without_an_import(headwater_broker: EmbeddedBroker) -> None:
    host, _, port = headwater_broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 5):
        pass


def test_each_test_has_its_own_and_a_session_may_share_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = []

        def test_one(headwater_broker, headwater_shared_broker):
            seen.append((headwater_broker, headwater_shared_broker))

        def test_two(headwater_broker, headwater_shared_broker):
            before, shared = seen[0]
            assert headwater_broker is not before
            assert headwater_shared_broker is shared
            assert not before.is_running
            assert shared.is_running
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_settings_come_from_ini_marker_and_call_the_later_over_the_earlier(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini(
        """
        [pytest]
        headwater_settings =
            num.partitions=2
            default.replication.factor=1
        """
    )
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka.admin import AdminClient, ConfigResource

        def partitions(broker):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            asked = admin.describe_configs([ConfigResource("broker", "1")])
            (answer,) = asked.values()
            return int(answer.result(30)["num.partitions"].value)

        def test_ini(headwater_broker):
            assert partitions(headwater_broker) == 2

        @pytest.mark.headwater({"num.partitions": "3"})
        def test_marker(headwater_broker):
            assert partitions(headwater_broker) == 3

        @pytest.mark.headwater({"num.partitions": "3"})
        def test_call(make_headwater_broker):
            assert partitions(make_headwater_broker({"num.partitions": "4"})) == 4
        """
    )
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=3)


def test_a_failed_test_shows_what_its_broker_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.headwater({"metric.reporters": "x"})
        def test_it(headwater_broker):
            assert False
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*headwater 127\.0\.0\.1:\d+", r".*metric.reporters.*"])


def test_a_failed_test_shows_what_the_shared_broker_said(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nheadwater_settings = metric.reporters=x")
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def service(headwater_shared_broker):
            return headwater_shared_broker.bootstrap

        def test_it(service):
            assert False
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r".*headwater 127\.0\.0\.1:\d+", r".*metric.reporters.*"])


def test_a_marker_names_topics_and_a_call_adds_to_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from headwater.blocking import Admin

        pytestmark = pytest.mark.headwater(
            settings={"auto.create.topics.enable": "false"}, topics={"orders": 3}
        )

        def topics(broker):
            with Admin(broker.bootstrap) as admin:
                return sorted(topic.name for topic in admin.list_topics())

        def test_marker(headwater_broker):
            assert topics(headwater_broker) == ["orders"]

        def test_call(make_headwater_broker):
            assert topics(make_headwater_broker(topics={"more": 1})) == ["more", "orders"]
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_a_marker_or_a_call_protects_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from headwater.blocking import Admin, Consumer, Producer
        from headwater.client.errors import AuthenticationFailed, ClientError

        def use(broker, mechanism):
            settings = broker.client_settings | {"sasl_mechanism": mechanism}
            with Producer(broker.bootstrap, **settings) as producer:
                producer.send("orders", value=b"tea")
            settings |= {"auto_offset_reset": "earliest"}
            with Consumer(broker.bootstrap, topics=["orders"], group="g", **settings) as consumer:
                assert next(iter(consumer)).value == b"tea"
            with Admin(broker.bootstrap, **broker.client_settings) as admin:
                assert "orders" in {each.name for each in admin.list_topics()}

        @pytest.mark.headwater(tls=True, users={"alice": "wonder,land"}, topics={"orders": 1})
        @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
        def test_marker(headwater_broker, mechanism):
            use(headwater_broker, mechanism)
            assert headwater_broker.client_settings["security_protocol"] == "SASL_SSL"

        def test_call(make_headwater_broker):
            broker = make_headwater_broker(users={"bob": "builder"})
            use(broker, "SCRAM-SHA-512")
            wrong = broker.client_settings | {"sasl_password": "guess"}
            with pytest.raises(AuthenticationFailed), Admin(broker.bootstrap, **wrong) as admin:
                admin.list_topics()
            broker = make_headwater_broker(tls=True)
            assert broker.client_settings["security_protocol"] == "SSL"
            with Admin(broker.bootstrap, **broker.client_settings) as admin:
                assert admin.list_topics() == []
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=3)


def test_a_marker_that_cannot_be_read_is_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.headwater(partitions=3)
        def test_it(headwater_broker): ...
        """
    )
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(
        ["*takes settings={...}, topics={...}, nodes=N, tls=True and users*'partitions'*"]
    )


def test_the_brokers_of_many_tests_leave_nothing_open_and_warn_of_nothing(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        import os
        import pytest
        from headwater.blocking import Consumer

        seen = []

        @pytest.mark.parametrize("number", range(4))
        def test_it(headwater_broker, number):
            with Consumer(headwater_broker.bootstrap, group="g", topics=["t"]) as consumer:
                consumer.poll(timeout_ms=1)
                seen.append(len(os.listdir("/proc/self/fd")))

        def test_after_them():
            assert len(os.listdir("/proc/self/fd")) < min(seen)
        """
    )
    pytester.runpytest_subprocess("-W", "error").assert_outcomes(passed=5)


def test_a_setting_that_is_none_is_said(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nheadwater_settings = num.partitions")
    pytester.makepyfile("def test_it(headwater_broker): ...")
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines(["*headwater_settings: 'num.partitions' is not key=value*"])


def test_data_given_a_folder_is_there_for_the_next_broker(
    make_headwater_broker: MakeHeadwaterBroker, tmp_path: Path
) -> None:
    make_headwater_broker(data=tmp_path).stop()
    assert (tmp_path / "meta.properties").exists()
    assert make_headwater_broker(data=tmp_path).is_running
