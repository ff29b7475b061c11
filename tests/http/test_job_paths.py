"""Job keys with slashes in a path."""

from __future__ import annotations

import pytest

from fleet_ett.http.job_paths import decode_key, one_segment


@pytest.mark.parametrize(
    ("raw", "key", "sub_path"),
    [
        ("/v1/jobs/dlrm-7", "dlrm-7", ""),
        ("/v1/jobs/prod/8812/17", "prod/8812/17", ""),
        ("/v1/jobs/prod%2F8812%2F17", "prod/8812/17", ""),
        ("/v1/jobs/prod/8812/ledger", "prod/8812", "ledger"),
        ("/v1/jobs/prod%2F8812/timeline", "prod/8812", "timeline"),
        ("/v1/jobs/a%2Fledger", "a/ledger", ""),
        ("/v1/jobs/a%2Fledger/ledger", "a/ledger", "ledger"),
        ("/v1/jobs/ledger", "ledger", ""),
        ("/v1/jobs/ledger/ledger", "ledger", "ledger"),
        ("/v1/jobs/a//b/", "a//b/", ""),
        ("/v1/jobs/100%25%2F", "100%/", ""),
        ("/v1/jobs/%252F", "%2F", ""),
        ("/v1/jobs/x%22%7D%201%0Aforged", 'x"} 1\nforged', ""),
        ("/v1/jobs/%F0%9F%8C%8B", "\U0001f30b", ""),
        ("/v1/jobs/..%2F..%2Fetc", "../../etc", ""),
    ],
)
def test_what_the_client_encoded_is_part_of_the_key(raw: str, key: str, sub_path: str) -> None:
    """The last plain segment may be a sub-path; everything else is the key, unchanged."""
    path = one_segment(raw)
    segment, _, tail = path.removeprefix("/v1/jobs/").partition("/")
    assert (key, sub_path) == (decode_key(segment), tail)


def test_bytes_that_are_no_text_find_no_job() -> None:
    """They become U+FFFD, which is nobody's key by accident, and never an exception."""
    assert "\ufffd" == decode_key(one_segment("/v1/jobs/%FF").removeprefix("/v1/jobs/"))
