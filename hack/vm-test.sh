#!/usr/bin/env bash
# Runs end-to-end tests, and tests of the shim in containers, in the virtual machine of hack/vm.sh: vm-test.sh [PATTERN], a pattern of go
# test's -run. Programs are built here, without the race detector, which an emulated processor makes slow. VM_TEST_TIMEOUT bounds each
# of both: 50m. VM_TEST_PARALLEL is how many tests run at a time: 2; beside other work on the host two may be too slow for the calls of the
# engine. Needs the engine, the base image and a static busybox.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pattern=${1:-'TestOutOfMemory|TestOperationsAtTheMemoryLimit|TestLimitsHold|TestTheEndForWantOfMemory|TestAtThePidsLimit|TestAPausedSandbox|TestAPlainSandbox|TestAQuotaOfTheFileSystem|TestContainerKeepsItsReserve|TestContainerReportsKilledChildren|TestContainerOutOfMemory'}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export CGO_ENABLED=0
tests=internal/testing/e2e
mkdir -p "$dir/bin" "$dir/e2e"
go build -trimpath -ldflags '-s -w' -o "$dir/bin/" ./cmd/agboxd ./cmd/agbox ./cmd/agbox-shim ./internal/testing/scriptmodel \
  ./$tests/testdata/{dial,hostile,testagent} ./internal/shim/testdata/{hog,lockgrabber}
go test -c -trimpath -ldflags '-s -w' -tags docker -o "$dir/e2e/e2e.test" ./$tests
go test -c -trimpath -ldflags '-s -w' -tags docker -o "$dir/shim.test" ./internal/shim
cp -r $tests/testdata "$dir/e2e/"
cp /bin/busybox "$dir/busybox"
docker save -o "$dir/base.tar" agbox-base:dev
printf '%s' "$pattern" >"$dir/pattern"
echo "${VM_TEST_TIMEOUT:-50m}" >"$dir/timeout"
echo "${VM_TEST_PARALLEL:-2}" >"$dir/parallel"
cat >"$dir/run.sh" <<'RUN'
set -e
echo "kernel $(uname -r), $(stat -fc %T /sys/fs/cgroup), Docker $(docker version --format '{{.Server.Version}}'), systemd $(systemctl --version | sed -n '1s/systemd \([^ ]*\).*/\1/p')"
docker load -q -i base.tar
cp busybox /bin/busybox
run() { TMPDIR=/data "$1" -test.v -test.parallel "$(cat /data/parallel)" -test.timeout "$(cat /data/timeout)" -test.run "$(cat /data/pattern)" -binaries /data/bin; }
(cd e2e && run ./e2e.test) && rc=0 || rc=$?
run ./shim.test || rc=$?
exit "$rc"
RUN
VM_TIMEOUT=${VM_TIMEOUT:-3600} hack/vm.sh run "$dir"
