"""What readers ask, as SQL: a module a question, on modules that say which rows a window is made of.

From below: `named` (values that change between two askings), `windows` (days, hours and edges), `lives` (jobs whole
or cut), `booked` (filters, periods, exact sums), `chosen` (jobs by what happened to them), `sums` and `job_sums` (the
rows of a fleet and of single jobs), `headings`, `weights`, `pages` (groups of one page alone) and `kept` (statements
used again). All others answer a question each.
"""
