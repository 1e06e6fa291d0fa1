// Package session keeps copies of the files in which agents' programs keep their sessions: in the data directory, out of the reach of
// sandboxes. It reads and writes the files inside a sandbox only through a worker, which runs in the container as the user of the program.
// So whatever a sandbox makes of its files, nothing of this host is opened by a path that it chose: names and metadata are data here.
//
// The copies of an agent are files named by the SHA-256 of their content, and a manifest that is replaced as a whole once they are on
// disk. So after a crash at any moment the last complete copy is there, and a repeated call has the same result.
package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	"github.com/agbox/agbox/internal/channel"
)

// Bounds besides Options.Limit; part of the contract.
const (
	// maxFiles is the number of files of one agent.
	maxFiles = 10_000
	// maxEntries bounds a listing, directories included.
	maxEntries = 2 * maxFiles
	// maxDepth is how many directories deep files are found.
	maxDepth = 30
	// maxAtOnce is the number of agents whose files are copied at the same time; more wait.
	maxAtOnce = 8
)

// Options are the dependencies of a Keeper, all of them required.
type Options struct {
	// Dir is the directory of the copies. It is created when it is needed, for this user alone.
	Dir string
	// Open returns a stream to a worker of a sandbox, of the user of its execs if user is empty.
	Open func(ctx context.Context, sandboxID, user string) (net.Conn, error)
	// Limit returns the most bytes that are kept of one agent.
	Limit func() int64
}

// Keeper saves sessions and puts them back. Its methods may be called concurrently, for one agent one at a time.
type Keeper struct {
	o    Options
	room chan struct{}
}

// New returns a Keeper.
func New(o Options) *Keeper { return &Keeper{o: o, room: make(chan struct{}, maxAtOnce)} }

// Request says whose files are copied, and where they are.
type Request struct {
	AgentID, SandboxID string
	// SessionID is the program's name of the session.
	SessionID string
	// Paths are files and directories, absolute or below "~/", which is Home, or if that is empty the home directory of the user.
	Paths []string
	Home  string
	// Named are those of the paths below which only files with the session's ID in their path belong to the session.
	Named []string
	// Others are the sessions of the sandbox's other agents. Files with such a name in their path are not saved: those agents save them.
	Others []string
}

func (r Request) at(p string) string {
	below, home := strings.CutPrefix(p, "~/")
	if home && r.Home != "" {
		return path.Join(r.Home, below)
	}
	return below // a worker starts at the home directory
}

// leavesOut reports whether the file name at the session path p does not belong to the session.
func (r Request) leavesOut(p, name string) bool {
	if slices.Contains(r.Named, p) && (r.SessionID == "" || !strings.Contains(name, r.SessionID)) {
		return true
	}
	for _, id := range r.Others {
		if id != "" && id != r.SessionID && strings.Contains(name, id) {
			return true
		}
	}
	return false
}

// Saved is what is kept of a session.
type Saved struct {
	Files, Bytes int64
}

// Save copies the session files that have changed since the last call, and forgets those that are gone. If they are more than the limits
// allow, or an error occurs, the last copy stays. Errors: ErrResourceExhausted beyond a limit, with a sentence for the user; those of the
// stream, of ctx, and of the disk.
func (k *Keeper) Save(ctx context.Context, r Request) (Saved, error) {
	release, err := k.enter(ctx)
	if err != nil {
		return Saved{}, err
	}
	defer release()
	v, err := k.vault(r.AgentID)
	if err != nil {
		return Saved{}, err
	}
	was := v.manifest()
	m, saved, err := k.copied(ctx, r, v, was)
	if err == nil {
		err = v.commit(m)
	} else {
		err = errors.Join(err, v.sweep(was)) // or failed calls would pile up copies
	}
	return saved, err
}

// copied copies what has changed since was, and returns the manifest of what there is now.
func (k *Keeper) copied(ctx context.Context, r Request, v vault, was *storev1.SessionManifest) (*storev1.SessionManifest, Saved, error) {
	m, left := &storev1.SessionManifest{SessionId: r.SessionID}, k.o.Limit()
	type found struct {
		at string // in the sandbox
		*storev1.SessionFile
	}
	var all []found
	for _, p := range r.Paths { // all of them first: what is too much is not copied
		tree, err := k.list(ctx, r, p)
		if err != nil {
			return nil, Saved{}, err
		}
		for _, f := range tree.files {
			all = append(all, found{tree.at(f.GetName()), f})
			if left -= f.GetSize(); left < 0 {
				return nil, Saved{}, k.tooLarge()
			}
		}
		if len(all) > maxFiles {
			return nil, Saved{}, k.tooMany()
		}
	}
	old := map[[2]string]*storev1.SessionFile{}
	for _, f := range was.GetFiles() {
		old[[2]string{f.GetPath(), f.GetName()}] = f
	}
	for _, f := range all {
		if had := old[[2]string{f.GetPath(), f.GetName()}]; had != nil && had.GetVersion() == f.GetVersion() && v.has(had) {
			m.Files = append(m.Files, had)
			continue
		}
		left += f.GetSize()
		switch err := k.fetch(ctx, r, v, f.at, f.SessionFile, left); {
		case isMissing(err): // removed meanwhile, or not for this user
			continue
		case err != nil:
			return nil, Saved{}, err
		}
		left -= f.GetSize() // it may have grown
		m.Files = append(m.Files, f.SessionFile)
	}
	return m, Saved{Files: int64(len(m.GetFiles())), Bytes: k.o.Limit() - left}, nil
}

func (k *Keeper) tooMany() error {
	return fmt.Errorf("its session has more than %d files: %w", maxFiles, errdefs.ErrResourceExhausted)
}

func (k *Keeper) tooLarge() error {
	return fmt.Errorf("its session has more bytes than the %.0f MiB of agents.session_limit: %w", float64(k.o.Limit())/(1<<20), errdefs.ErrResourceExhausted)
}

// Restore puts the saved session into the files of a sandbox. A file that the sandbox has with the same or a later time stays. Each file
// appears complete and with its time, so a call after a crash finds what the earlier one did. Errors: ErrNotFound when another session is
// saved, or none; those of the stream, of ctx, and of the disk.
func (k *Keeper) Restore(ctx context.Context, r Request) error {
	release, err := k.enter(ctx)
	if err != nil {
		return err
	}
	defer release()
	v, err := k.vault(r.AgentID)
	if err != nil {
		return err
	}
	m := v.manifest()
	if len(m.GetFiles()) == 0 || m.GetSessionId() != r.SessionID {
		return fmt.Errorf("no copy of session %q: %w", r.SessionID, errdefs.ErrNotFound)
	}
	for _, p := range r.Paths {
		there, err := k.list(ctx, r, p)
		if err != nil {
			return err
		}
		has := map[string]*storev1.SessionFile{}
		for _, f := range there.files {
			has[f.GetName()] = f
		}
		for _, f := range m.GetFiles() {
			now := has[f.GetName()]
			if f.GetPath() != p || now != nil && now.GetModified() >= f.GetModified() {
				continue
			}
			if err := k.put(ctx, r, v, there.at(f.GetName()), f, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes the copies of an agent. Idempotent.
func (k *Keeper) Remove(agentID string) error {
	v, err := k.vault(agentID)
	if err != nil {
		return err
	}
	return v.remove()
}

// enter waits for room among the agents whose files are copied.
func (k *Keeper) enter(ctx context.Context) (release func(), err error) {
	select {
	case k.room <- struct{}{}:
		return func() { <-k.room }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// tree are the regular files at one session path in a sandbox.
type tree struct {
	root  string // as the worker calls it
	files []*storev1.SessionFile
}

// at returns the path of a file in the sandbox; name is empty if the root is the file.
func (t tree) at(name string) string { return strings.TrimSuffix(t.root+"/"+name, "/") }

// list finds the files. What is not a regular file, what a manifest cannot name, and what is not below the root is left out: the answers
// come from a process of the sandbox.
func (k *Keeper) list(ctx context.Context, r Request, p string) (tree, error) {
	t := tree{root: r.at(p)}
	var root channel.Entry
	err := k.call(ctx, r.SandboxID, channel.Call{Op: channel.Stat, Path: t.root, Follow: true}, func(s *stream) error {
		return s.ReadAnswer(channel.Result, &root)
	})
	if isMissing(err) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	if root.Type == channel.Regular && !r.leavesOut(p, p) {
		t.files = append(t.files, fileOf(p, "", root))
	}
	if root.Type != channel.Directory {
		return t, nil
	}
	c := channel.Call{Op: channel.List, Path: t.root, Depth: maxDepth, Limit: maxEntries}
	err = k.call(ctx, r.SandboxID, c, func(s *stream) error {
		data, entries := channel.NewDataReader(s.Reader), 0
		for {
			piece, err := data.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			var page channel.Page
			if err == nil {
				err = json.Unmarshal(piece, &page)
			}
			if err != nil {
				return err
			}
			if entries += len(page.Entries); page.More || entries > maxEntries {
				return k.tooMany()
			}
			for _, e := range page.Entries {
				name, below := strings.CutPrefix(e.Path, root.Path+"/")
				ours := below && filepath.IsLocal(name) && path.Clean(name) == name && len(name) < 4096
				if ours && e.Type == channel.Regular && len(e.Raw) == 0 && e.Size >= 0 && !r.leavesOut(p, name) {
					t.files = append(t.files, fileOf(p, name, e))
				}
			}
		}
	})
	if isMissing(err) { // removed meanwhile
		return tree{root: t.root}, nil
	}
	return t, err
}

func fileOf(p, name string, e channel.Entry) *storev1.SessionFile {
	return &storev1.SessionFile{Path: p, Name: name, Mode: e.Mode & 0o777, Modified: e.Modified, Size: e.Size, Version: e.Version}
}

// fetch copies one file of a sandbox, and sets what f says of it to what it was when it was opened. A file that grows meanwhile is copied with
// what it has got, up to most bytes; its version then differs at the next call.
func (k *Keeper) fetch(ctx context.Context, r Request, v vault, name string, f *storev1.SessionFile, most int64) error {
	zero := int64(0)
	return k.call(ctx, r.SandboxID, channel.Call{Op: channel.Read, Path: name, Offset: &zero}, func(s *stream) error {
		var e channel.Entry
		if err := s.ReadAnswer(channel.Result, &e); err != nil {
			return err
		}
		object, size, err := v.add(io.LimitReader(channel.NewDataReader(s.Reader), most+1))
		if err != nil {
			return err
		}
		if size > most {
			return k.tooLarge()
		}
		f.Mode, f.Modified, f.Version, f.Size, f.Object = e.Mode&0o777, e.Modified, e.Version, size, object
		return nil
	})
}

// put writes one file of a sandbox: at once, and only if it is still as it was listed, or still missing. now is nil if it is missing.
func (k *Keeper) put(ctx context.Context, r Request, v vault, name string, f, now *storev1.SessionFile) error {
	mode, modified := f.GetMode(), f.GetModified()
	c := channel.Call{
		Op: channel.WriteFile, Path: name, Mode: &mode, Modified: &modified, Parents: true, Exclusive: now == nil, Version: now.GetVersion(),
	}
	err := k.call(ctx, r.SandboxID, c, func(s *stream) error {
		content, err := v.open(f)
		if err != nil {
			return err
		}
		defer content.Close()
		if err := s.ReadAnswer(channel.Result, nil); err != nil {
			return err
		}
		_, copied := io.Copy(channel.NewDataWriter(s.conn), content)
		if copied == nil {
			copied = channel.Write(s.conn, channel.Frame{Kind: channel.End})
		}
		if err := s.ReadAnswer(channel.Result, nil); err != nil { // it says why a write failed
			return err
		}
		return copied
	})
	if failed, ok := errors.AsType[*channel.Failed](err); ok && (failed.Reason == channel.FileExists || failed.Reason == channel.FileChanged) {
		return nil // a program of the sandbox has written it meanwhile
	}
	return err
}

// isMissing reports whether a file is not there, for this user.
func isMissing(err error) bool {
	failed, ok := errors.AsType[*channel.Failed](err)
	if !ok {
		return false
	}
	switch failed.Reason {
	case channel.FileNotFound, channel.FileType, channel.FilePermission:
		return true
	}
	return false
}

// stream is an operation of a worker under way.
type stream struct {
	*channel.Reader
	conn net.Conn
}

// call runs one operation of a worker. The stream is closed at the end of do and of ctx.
func (k *Keeper) call(ctx context.Context, sandboxID string, c channel.Call, do func(*stream) error) error {
	conn, err := k.o.Open(ctx, sandboxID, "")
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() { stop(); conn.Close() }()
	if err = channel.WriteJSON(conn, channel.Request, c); err == nil {
		err = do(&stream{channel.NewReader(bufio.NewReaderSize(conn, channel.MaxData)), conn})
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // it closed the stream
	}
	return err
}
