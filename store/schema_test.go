package store

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

var update = flag.Bool("update", false, "rewrite testdata/schema.golden")

// leaves holds the message type of each kind of value; nil is an 8-byte integer.
var leaves = map[string]proto.Message{
	"meta/schema": nil, "meta/instance": &storev1.Instance{}, "meta/engine-marker": nil, "meta/rebuild": nil, "meta/lineage": nil, "sandbox-unproven": nil,
	"meta/engine-identity": &storev1.EngineIdentity{}, "sandbox-unswept": nil, "sandbox-given-up": &storev1.GivenUp{},
	"meta/gateway-secret": &storev1.GatewaySecret{}, "gateway-keys": &storev1.GatewayKey{}, "template-builds": &storev1.TemplateBuild{},
	"meta/epoch": nil, "meta/clock": &storev1.ClockRecord{}, "meta/drain": &storev1.DrainRecord{},
	"sandbox-ids": nil, "exec-ids": nil, "sandbox-state": nil, "sandbox-trimmed": nil, "sandbox-deleted-at": nil,
	"sandbox-config": &agboxv1.CreateSpec{}, "sandbox-desired": &storev1.Desired{}, "sandbox-progress": &storev1.Progress{},
	"sandbox-names": &storev1.NameRef{}, "exec-refs": &storev1.ExecRef{},
	"events": &agboxv1.SandboxEvent{}, "exec-config": &agboxv1.CreateExecRequest{},
	"exec-desired": &storev1.ExecDesired{}, "exec-status": &storev1.ExecEnd{},
	"agent-ids": nil, "agent-config": &agboxv1.AgentSpec{}, "agent-desired": &storev1.AgentDesired{},
	"agent-status": &storev1.AgentStatus{}, "agent-position": &storev1.AgentPosition{},
	"agent-prompts": &storev1.AgentPrompt{}, "agent-prompt-ids": &storev1.AgentPromptRef{},
	"agent-transitions": &agboxv1.AgentTransition{}, "agent-events": &agboxv1.AgentEvent{},
}

func TestTheFileIsAsDrawn(t *testing.T) {
	o := newClock().options(testOptions(t))
	o.Rebuild = true
	s := open(t, o)
	oneOfEverything(t, s)
	var got strings.Builder
	must(t, s.view(ctx, func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			older := isNamed(string(name), olderBuckets, olderPrefixes)
			if newer := isNamed(string(name), newerBuckets, newerPrefixes); older == newer {
				t.Errorf("bucket %s is of an older daemon: %v; of agboxd alone: %v", name, older, newer)
			}
			return b.ForEach(func(k, v []byte) error { return drawLeaf(&got, string(name), k, v) })
		})
	}))
	const golden = "testdata/schema.golden"
	if *update {
		must(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(t, err)
	if got.String() != string(want) {
		t.Errorf("the file holds\n%s\nwant\n%s", got.String(), want)
	}
	drawingNamesAll(t)
}

func oneOfEverything(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.CreateSandbox(ctx, "box", "web", spec(), nil)
	must(t, err)
	report(t, s, "box", phase(agboxv1.EventType_SANDBOX_READY, ready))
	startExec(t, s, "box", "exec-1")
	endExec(t, s, "exec-1")
	must(t, s.Report(ctx, "box", Report{Generation: 1, Progress: &storev1.Progress{HooksDone: 1}}))
	s.SetEventHistoryLimit(2)
	report(t, s, "box", serviceEvent())
	s.SetEventHistoryLimit(0)
	makeDeleted(t, s, "gone")
	must(t, s.SetClock(ctx, &storev1.ClockRecord{BootId: "boot"}))
	must(t, s.SetMarkerWritten(ctx))
	_, err = s.GatewaySecret(ctx)
	must(t, err)
	must(t, s.CreateGatewayKey(ctx, "key", &storev1.GatewayKey{Owner: "me", Hash: []byte("hash")}))
	must(t, s.CreateTemplateBuild(ctx, "build", &storev1.TemplateBuild{TemplateId: "template", Owner: "me", Name: "web"}, nil))
	must(t, s.SetEngineIdentity(ctx, &storev1.EngineIdentity{StorageDriver: "overlay2", DataRoot: "/var/lib/docker"}))
	must(t, s.update(ctx, func(t *txn) error { t.putInt(bucketUnswept, "lost", 1); return nil }))
	must(t, s.update(ctx, func(t *txn) error { t.putInt(bucketUnproven, "hidden", 1); return nil }))
	must(t, s.GiveUp(ctx, map[string]*storev1.GivenUp{"box": {PrimaryId: "c-1"}}))
	withAgent(t, s, "agent")
	makeIdle(t, s, "agent")
	makeBusy(t, s, "agent", "p-1")
	_, err = s.NewEpoch(ctx)
	must(t, err)
	_, err = s.StartDrain(ctx, DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK})
	must(t, err)
}

func drawLeaf(w *strings.Builder, bucket string, k, v []byte) error {
	kind, _, perSandbox := strings.Cut(bucket, ":")
	key := string(k)
	switch kind {
	case "events", "agent-events", "agent-transitions", "agent-prompts":
		seq, err := decodeInt(k)
		if err != nil {
			return err
		}
		key = fmt.Sprint(seq)
	}
	leaf := kind
	if bucket == bucketMeta {
		leaf += "/" + key
	}
	m, known := leaves[leaf]
	if !known || (perSandbox && kind == bucketMeta) {
		return fmt.Errorf("%s/%s is not drawn", bucket, key)
	}
	typ := "8 bytes"
	if m == nil {
		if _, err := decodeInt(v); err != nil {
			return fmt.Errorf("%s/%s: %w", bucket, key, err)
		}
	} else {
		if err := decode(v, m); err != nil {
			return fmt.Errorf("%s/%s: %w", bucket, key, err)
		}
		if len(m.ProtoReflect().GetUnknown()) > 0 {
			return fmt.Errorf("%s/%s is not a %T", bucket, key, m)
		}
		typ = string(m.ProtoReflect().Descriptor().FullName())
	}
	fmt.Fprintf(w, "%s/%s : %s\n", bucket, key, typ)
	return nil
}

// drawingNamesAll checks that the comment in buckets.go and the golden file name every bucket.
func drawingNamesAll(t *testing.T) {
	t.Helper()
	source, err := os.ReadFile("buckets.go")
	must(t, err)
	golden, err := os.ReadFile("testdata/schema.golden")
	must(t, err)
	for leaf := range leaves {
		bucket, _, _ := strings.Cut(leaf, "/")
		if !strings.Contains(string(source), "──"+bucket) || !strings.Contains(string(golden), bucket) {
			t.Errorf("%s is missing in the drawing or in the golden file", bucket)
		}
	}
}
