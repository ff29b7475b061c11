"""The content coding `ett-zlib`: zlib (RFC 1950) that begins with a dictionary of what bodies say again and again.

A node's batch is small, and most of it are the names of fields, which gzip has to spell out in every body. With
the names known to both sides beforehand it is a third smaller. A stream names its dictionary by its Adler-32 (FDICT,
RFC 1950), so that a service that does not know it can say so (415) and the agent goes back to gzip.

A dictionary that was ever sent with is never changed: a better one is a new one, and a service keeps the old.
"""

from __future__ import annotations

import zlib

CODING = "ett-zlib"
LEVEL = 6
HEADER_BYTES = 6  # of a stream with a dictionary; the last four name it
HAS_DICTIONARY = 0x20  # bit of the second byte
DICTIONARY = (  # what is rare first: what stands near the end costs less
    b'"quarantined":"incarnation":"scheduler_state":"","failed_node":"","failed_rank":0,"signal":9,"exit_code":1,'
    b'"error":"Traceback (most recent call last):\\n  File \\"","outcome":"failed","outcome":"completed",'
    b'"type":"attempt_end","type":"fault","kind":"xid","kind":"exception","code":,"gpu":0,"text":"'
    b'"unit":"samples","per_optimizer_step":1,"clock_jump_ns":,"raised":"","death":"inferred"},"aborted":true,"attrs":{'
    b'"labels":{},"name":"","cluster":"","team":"","model":"","framework":"pytorch","type":"job","job":"'
    b'"released_between":false,"type":"attempt_start","world_size":8,"gpus":8,"gpus_by_node":{"gpu-00":8},"nodes":["gpu-00"]'
    b',"work_key":"sha256:","overlapped":true,"phase":"compile_cold","phase":"compile_cache_hit","phase":"recompile",'
    b'"phase":"launcher_start","phase":"process_import","phase":"checkpoint_load","phase":"evaluation","phase":"data_stall"'
    b',"type":"phase_open","phase":"step_new_data","step":10,"type":"phase","phase":"checkpoint_save_block","step":100,'
    b'"job":"","attempt":"","columns":{"span":["-wait-","-step-","-1","-2"],"start":[17],"end":[17],"rank":[0,1,2,3,4,5,6,7],'
    b'"seq":[1,2]}},{"type":"checkpoint","step":100,"kind":"load","mode":"sync","kind":"save","mode":"async","job":"'
    b'","attempt":"","columns":{"ts":[17],"cursor":[],"bytes":[],"rank":[0,1,2,3,4,5,6,7],"seq":[]}},'
    b'{"agent":{"node":"gpu-00","incarnation":"","version":"0.1.0"},"clock_offset_ns":0,"sent_at":179,"events":['
    b'{"type":"heartbeat","ts":179,"jobs":[{"job":"prod-a/","attempt":"slurm:","ranks":[0,1,2,3,4,5,6,7]}],"seq":1}],'
    b'"batches":[{"type":"steps","job":"","attempt":"","rank":0,"columns":{"first":[1,100],"last":[99,199],"start":[179,179'
    b'],"end":[179,179],"slowest":[1000000,1000000],"data_wait":[1000,1000],"cursor_start":[4096,4096],"cursor_end":[8192,'
    b'8192],"rank":[0,1,2,3,4,5,6,7],"seq":[10,11]}}]}'
)  # fmt: skip
DICTIONARY_ID = zlib.adler32(DICTIONARY).to_bytes(4, "big")


def deflate(body: bytes) -> bytes:
    """A body in this coding."""
    packer = zlib.compressobj(LEVEL, zdict=DICTIONARY)
    return packer.compress(body) + packer.flush()
