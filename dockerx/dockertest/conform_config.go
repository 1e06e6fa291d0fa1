package dockertest

import (
	"reflect"
	"time"

	"github.com/agbox/agbox/dockerx"
)

// configOf returns only the fields of d that derive from its spec and image.
func configOf(d dockerx.ContainerDetail) dockerx.ContainerDetail {
	return dockerx.ContainerDetail{
		ImageRef: d.ImageRef, Entrypoint: d.Entrypoint, Cmd: d.Cmd, User: d.User, WorkingDir: d.WorkingDir, Env: d.Env,
		Hostname: d.Hostname, Runtime: d.Runtime, Healthcheck: d.Healthcheck, DiskBytes: d.DiskBytes, GPUs: d.GPUs,
	}
}

func (w *world) wantConfig(id string, want dockerx.ContainerDetail) {
	w.Helper()
	d := w.inspect(id)
	if got := configOf(d); !reflect.DeepEqual(got, want) {
		w.Errorf("created from %+v\nwant %+v", got, want)
	}
	if d.Image == "" || d.Image == d.ImageRef {
		w.Errorf("image %q", d.Image)
	}
}

func checkConfig(w *world) {
	full := w.spec("full", "")
	full.Cmd, full.Env, full.User, full.WorkingDir = []string{"7"}, []string{"A=1", "B=x=y"}, "0:0", "/etc"
	full.Hostname, full.Runtime, full.GPUs = "host", "runc", "a,b"
	full.Healthcheck = &dockerx.Healthcheck{
		Test: []string{"CMD", "true"}, Interval: time.Second, Timeout: 2 * time.Second, StartPeriod: 3 * time.Second, Retries: 4,
	}
	w.wantConfig(w.create(full), dockerx.ContainerDetail{
		ImageRef: ConformImage, Entrypoint: full.Entrypoint, Cmd: full.Cmd, User: "0:0", WorkingDir: "/etc",
		Env: append(full.Env, "C=image"), Hostname: "host", Runtime: "runc", GPUs: "a,b", Healthcheck: full.Healthcheck,
	})

	bare := w.spec("bare", "")
	bare.Entrypoint, bare.GPUs = nil, "all"
	id := w.create(bare)
	w.wantConfig(id, dockerx.ContainerDetail{
		ImageRef: ConformImage, Entrypoint: []string{"/bin/sleep"}, Cmd: []string{"900"}, User: "nobody", WorkingDir: "/tmp",
		Env: []string{"A=image", "C=image"}, Hostname: id[:12], Runtime: defaultRuntime, GPUs: "all",
	})
	bare = w.spec("arguments", "")
	bare.Entrypoint, bare.Cmd, bare.GPUs = nil, []string{"800"}, "2"
	if d := w.inspect(w.create(bare)); !reflect.DeepEqual([][]string{d.Entrypoint, d.Cmd, {d.GPUs}}, [][]string{{"/bin/sleep"}, {"800"}, {"2"}}) {
		w.Errorf("created from %+v", configOf(d))
	}
}
