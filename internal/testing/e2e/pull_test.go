//go:build docker

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/dockerx/dockertest/busybox"
	"github.com/agbox/agbox/dockerx/dockertest/registry"
	"github.com/agbox/agbox/internal/host/naming"
)

// runnable is a layer that containers can run in, of which no other image has a copy, with size random bytes in /random.
func runnable(t testing.TB, size int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, root := tar.NewWriter(&buf), tar.NewReader(bytes.NewReader(busybox.Root(t)))
	for {
		h, err := root.Next()
		if err == io.EOF {
			break
		}
		if err != nil || w.WriteHeader(h) != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, root); err != nil {
			t.Fatal(err)
		}
	}
	content := make([]byte, size)
	_, _ = rand.Read(content) // never fails
	if err := w.WriteHeader(&tar.Header{Name: "random", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(size)}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil || w.Close() != nil {
		t.Fatal("tar")
	}
	return buf.Bytes()
}

// newRegistry has an image with the tag run, whose containers can run, and drops what is pulled of it.
func newRegistry(t testing.TB, size int) *registry.Registry {
	t.Helper()
	r := registry.New(t, 1000)
	r.OfferLayers(t, "run", "", runnable(t, size))
	busybox.Drop(t, "", r.Ref("run"))
	return r
}

// pulled are the events of pulls.
func (d *daemon) pulled(id string) (list []*agboxv1.ImagePullDetails) {
	d.Helper()
	for _, e := range d.events(id) {
		if p := e.GetImagePull(); p != nil {
			list = append(list, p)
		}
	}
	return list
}

func (d *daemon) createImage(ref, policy string) string {
	d.Helper()
	return d.create(&agboxv1.CreateSpec{Image: ref, PullPolicy: policy})
}

func TestFiveCreatesPullAnImageOnceAndReportItsProgress(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, 6<<20)
	r.Rate = 4 << 20
	r.Release()
	d := newDaemon(t, "", "")
	ids := make([]string, 5)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() { ids[i] = d.createImage(r.Ref("run"), "") })
	}
	wg.Wait()
	for _, id := range ids {
		d.await(id, ready)
		d.sh(id, "true")
	}
	if n := r.Pulls.Load(); n != 1 {
		t.Errorf("the layer was pulled %d times", n)
	}
	for _, id := range ids {
		d.wantProgress(id, r.Ref("run"))
	}
	later := d.createImage(r.Ref("run"), "")
	d.await(later, ready)
	d.wantRows(later, "ACCEPTED PREPARING READY")
	for _, id := range append(ids, later) {
		d.remove(id)
	}
}

// wantProgress checks that the bytes grew to all of them.
func (d *daemon) wantProgress(id, ref string) {
	d.Helper()
	list := d.pulled(id)
	if len(list) < 2 {
		d.Fatalf("%s: %v", id, list)
	}
	for i, p := range list {
		status := "pulling"
		if i == len(list)-1 {
			status = "pulled"
		}
		if p.GetImage() != ref || p.GetServiceName() != "" || p.GetStatus() != status || i > 0 && p.GetCurrentBytes() < list[i-1].GetCurrentBytes() {
			d.Errorf("%d of %d: %v", i, len(list), p)
		}
	}
	first, last := list[0], list[len(list)-1]
	if last.GetTotalBytes() < 6<<20 || last.GetCurrentBytes() != last.GetTotalBytes() || first.GetCurrentBytes() >= last.GetCurrentBytes() {
		d.Errorf("first %v, last %v", first, last)
	}
}

func TestPullsThatCanNotWorkSayWhy(t *testing.T) {
	t.Parallel()
	const secret = "not-the-password"
	closed := registry.New(t, 1000)
	closed.Login = "me:password"
	open := newRegistry(t, 1000)
	home := must(os.MkdirTemp("", "agbox-e2e-"))(t)
	conf := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, closed.Host(), base64.StdEncoding.EncodeToString([]byte("me:"+secret)))
	if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	d := prepared(t, home)
	d.engine = fmt.Sprintf("credentials_dir = %q\n", home)
	d.start()
	absent := "no such repository"
	if d.inContainerd() {
		absent = "no such tag" // containerd's image store reports both alike
	}
	db := web("db", 0)
	db.Image = open.Ref("none")
	for id, parts := range map[string][]string{
		d.createImage(closed.Ref("1"), ""):                                          {closed.Host(), "refused the credentials", "docker login"},
		d.createImage(open.Ref("absent"), ""):                                       {open.Ref("absent"), "no such tag"},
		d.createImage(open.Host()+"/other/image:1", ""):                             {absent},
		d.createImage(open.Ref("run"), "never"):                                     {open.Ref("run"), "pull_policy"},
		d.create(&agboxv1.CreateSpec{RequiredServices: []*agboxv1.ServiceSpec{db}}): {"service db", "no such tag"},
	} {
		d.failsWith(id, "SANDBOX_CREATE_FAILED", parts...)
		d.awaitNothing(id)
		if text := d.sandbox(id).String(); strings.Contains(text, secret) {
			t.Errorf("it tells the password: %s", text)
		}
		d.remove(id)
	}
	if n := open.Pulls.Load(); n != 0 {
		t.Errorf("%d layers were pulled", n)
	}
	if strings.Contains(d.log.tail(1<<20), secret) {
		t.Error("the log tells the password")
	}
}

func TestARegistryThatHangsIsGivenUpAndTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, 1000) // serves no layer yet
	d := prepared(t, must(os.MkdirTemp("", "agbox-e2e-"))(t))
	d.engine = "pull_timeout = \"3s\"\n"
	d.start()
	id := d.createImage(r.Ref("run"), "")
	d.eventually("the status says so", func() error {
		sb := d.sandbox(id)
		if s := sb.GetStatusMessage(); sb.GetState() != pending || !strings.Contains(s, "not complete within 3s") || !strings.Contains(s, r.Host()) {
			return fmt.Errorf("%s: %q", sb.GetState(), s)
		}
		return nil
	})
	r.Release()
	d.await(id, ready)
	gone := d.createImage(r.Ref("run"), "always")
	d.await(gone, ready)
	d.remove(gone)
	d.remove(id)
}

func TestPullPolicies(t *testing.T) {
	t.Parallel()
	r := newRegistry(t, 1000)
	r.Release()
	d := newDaemon(t, "", "")
	image := func(id string) string {
		return strings.TrimSpace(d.docker("inspect", "-f", "{{.Image}}", naming.Primary(id)))
	}
	first := d.createImage(r.Ref("run"), "")
	d.await(first, ready)
	old := image(first)
	busybox.Drop(t, "", old)
	r.OfferLayers(t, "run", "", runnable(t, 2000))
	for _, policy := range []string{"", "if-not-present", "never"} {
		id := d.createImage(r.Ref("run"), policy)
		d.await(id, ready)
		if got := image(id); got != old {
			t.Errorf("%q took %s, not %s", policy, got, old)
		}
		d.remove(id)
	}
	always := d.createImage(r.Ref("run"), "always")
	d.await(always, ready)
	if got := image(always); got == old {
		t.Errorf("always took the old one")
	}
	d.remove(always)
	d.remove(first)
}
