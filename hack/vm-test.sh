#!/usr/bin/env bash
# Runs end-to-end tests in the virtual machine of hack/vm.sh: vm-test.sh [PATTERN], a pattern of go test's -run. Programs are
# built here, without the race detector, which an emulated processor makes slow. VM_TEST_TIMEOUT bounds the tests: 50m. Needs the engine and the base image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pattern=${1:-'TestOutOfMemory|TestOperationsAtTheMemoryLimit|TestLimitsHold|TestTheEndForWantOfMemory|TestAtThePidsLimit|TestAPausedSandbox|TestAPlainSandbox|TestAQuotaOfTheFileSystem'}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CGO_ENABLED=0
tests=internal/testing/e2e
mkdir -p "$dir/bin" "$dir/e2e"
go build -trimpath -ldflags '-s -w' -o "$dir/bin/" ./cmd/agboxd ./cmd/agbox ./cmd/agbox-shim ./internal/testing/scriptmodel \
  ./$tests/testdata/{dial,hostile,testagent}
go test -c -trimpath -ldflags '-s -w' -tags docker -o "$dir/e2e/e2e.test" ./$tests
cp -r $tests/testdata "$dir/e2e/"
docker save -o "$dir/base.tar" agbox-base:dev
printf '%s' "$pattern" >"$dir/pattern"
echo "${VM_TEST_TIMEOUT:-50m}" >"$dir/timeout"
cat >"$dir/run.sh" <<'RUN'
set -e
echo "kernel $(uname -r), $(stat -fc %T /sys/fs/cgroup), Docker $(docker version --format '{{.Server.Version}}'), systemd $(systemctl --version | sed -n '1s/systemd \([^ ]*\).*/\1/p')"
docker load -q -i base.tar
cd e2e
TMPDIR=/data ./e2e.test -test.v -test.parallel 2 -test.timeout "$(cat ../timeout)" -test.run "$(cat ../pattern)" -binaries /data/bin
RUN
VM_TIMEOUT=${VM_TIMEOUT:-3600} hack/vm.sh run "$dir"
