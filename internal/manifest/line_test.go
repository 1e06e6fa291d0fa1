package manifest_test

import (
	"testing"

	"github.com/agbox/agbox/internal/manifest"
)

func TestLineOfAField(t *testing.T) {
	const text = `# two documents
apiVersion: agbox/v1
kind: Sandbox
metadata:
  name: first
  labels: {a: b}
spec:
  image: x
---
apiVersion: agbox/v1
kind: Sandbox
metadata:
  name: second
  labels:
    team.x: a
spec:
  envs:
    A.B: x
  mounts:
    - source: /a
      target: /b
    - target: /c
  required_services:
    db:
      image: y
      ports:
        - {container_port: 1}
        - container_port: 2
  labels: {other: x}
---
{apiVersion: agbox/v1, kind: Sandbox, metadata: {name: third}, spec: {image: x,
  cpu_limit: 7}}
`
	found, err := manifest.Parse([]byte(text), "")
	if err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]int{
		"name": 13, "labels[team.x]": 15, "labels[other]": 29, "labels": 29, "envs[A.B]": 18, "mounts": 19, "mounts[0].source": 20,
		"mounts[1].target": 22, "mounts[1].source": 22, "mounts[7]": 19, "required_services[db].image": 25,
		"required_services[db].ports[1].container_port": 28, "required_services[db].healthcheck": 24, "image": 16, "": 16, "[": 16, "envs[": 17,
	} {
		if got := found[1].LineOf(field); got != want {
			t.Errorf("%q: got line %d, want %d", field, got, want)
		}
	}
	if got := found[0].LineOf("image"); got != 8 {
		t.Errorf("first document: got line %d", got)
	}
	if got := found[2].LineOf("cpu_limit"); got != 32 {
		t.Errorf("third document: got line %d", got)
	}
}
