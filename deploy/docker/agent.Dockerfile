# The agent of a node: this project and no dependency. From the project's root:
#   docker build -f deploy/docker/agent.Dockerfile -t ett-agent:0.1.0 .
ARG PYTHON=python:3.14.7-slim-bookworm@sha256:9ab8d9c8514b44f90cf0029dd42fdd7e9e211e639c8b995304cc04568dee900f

FROM ${PYTHON} AS build
WORKDIR /src
RUN python -m venv /opt/build && python -m venv --without-pip /opt/fleet-ett
COPY deploy/locks/build.lock deploy/locks/
RUN /opt/build/bin/pip install --no-cache-dir --require-hashes -r deploy/locks/build.lock
COPY LICENSE README.md pyproject.toml ./
COPY collectors collectors/
COPY migrations migrations/
COPY service service/
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/build/bin/pip --python /opt/fleet-ett install --no-cache-dir --no-deps --no-index dist/*.whl

FROM ${PYTHON}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin ett-agent
COPY --from=build /opt/fleet-ett /opt/fleet-ett
ENV PATH=/opt/fleet-ett/bin:$PATH \
    PYTHONUNBUFFERED=1
# to see the spools of other users it must be started as one who may: `--user 0`, or as the DaemonSet says
USER 10001:10001
ENTRYPOINT ["ett-agent"]
