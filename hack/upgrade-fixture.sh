#!/usr/bin/env bash
# Have the agboxd of COMMIT make the fixture cmd/agboxd/testdata/upgrade/NAME.{tar.gz,json}: upgrade-fixture.sh COMMIT NAME (root, Docker)
set -euo pipefail
cd "$(dirname "$0")/.."
commit=${1:?which commit} name=${2:?which name}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
hack/upgrade-bin.sh "$commit" "$bin"
AGBOX_OLD_BIN=$bin go test -count=1 -tags docker -run 'TestMakeTheUpgradeFixture$' -v ./internal/testing/e2e \
  -upgrade-fixture "$PWD/cmd/agboxd/testdata/upgrade/$name"
