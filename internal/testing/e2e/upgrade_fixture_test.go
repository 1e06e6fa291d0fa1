//go:build docker

package e2e

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/agbox/agbox/internal/testing/upgrade"
)

var upgradeFixture = flag.String("upgrade-fixture", "", "have AGBOX_OLD_BIN make this fixture of an upgrade, NAME.tar.gz and NAME.json: see hack/upgrade-fixture.sh")

// TestMakeTheUpgradeFixture makes one of cmd/agboxd/testdata/upgrade.
func TestMakeTheUpgradeFixture(t *testing.T) {
	if *upgradeFixture == "" {
		t.Skip("it makes test data, and tests nothing: run hack/upgrade-fixture.sh")
	}
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.conf = "[disk]\nreserve = \"512KiB\"\n"
	d.of(oldBinaries(t))
	d.unaudited = "an earlier version made it"
	d.start()
	settle(d, "echo 1; sleep 100000", "echo working\nsleep 100000")
	text := must(json.MarshalIndent(d.answers(), "", " "))(t)
	d.kill()
	if err := os.WriteFile(*upgradeFixture+".json", append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(*upgradeFixture), 0o755); err != nil {
		t.Fatal(err)
	}
	// The programs that containers mount, and zeros.
	if err := upgrade.Pack(d.dataDir(), *upgradeFixture+".tar.gz", "shim", "ballast"); err != nil {
		t.Fatal(err)
	}
	d.of(binaries) // whose containers are removed now
}
