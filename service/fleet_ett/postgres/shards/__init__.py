"""Several database servers: each is a complete fleet-ett database that owns some jobs; one more joins them.

`servers` connects, `setup` makes and migrates, `schema` is the joined view of all, `store` writes to the owners,
`reads` asks the owner of one job or the joined view. `citus` is the same idea left to an extension.
"""
