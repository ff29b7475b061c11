"""The pure core: events in, ledgers out. No sockets, files, clock or logging; `now` is an argument."""
