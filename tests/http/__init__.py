"""Tests of the HTTP surface."""  # noqa: A005 - the tree of the tests mirrors the packages
