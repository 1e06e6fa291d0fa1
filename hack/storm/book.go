package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// book holds the storm's own records: accepted objects, calls and counts. The verdict compares it with the daemon's answers. After the
// storm only the proxy uses it beside the verdict, and only to count.
type book struct {
	mu        sync.Mutex
	counts    map[string]int
	sandboxes map[string]kind           // accepted sandboxes, by ID
	execs     map[string]string         // sandbox of each accepted exec, by exec ID
	prompts   []task                    // accepted prompts
	tries     map[string]map[string]int // number of calls by ID and verb, for any answer
	problems  []string
}

// kind is the purpose of a sandbox.
type kind string

const (
	plain       kind = "plain"
	withService kind = "with a service"
	wakes       kind = "with auto_resume"
	small       kind = "with little memory"
)

// task is a prompt of an agent.
type task struct{ prompt, agent, sandbox string }

func newBook() *book {
	return &book{counts: map[string]int{}, sandboxes: map[string]kind{}, execs: map[string]string{}, tries: map[string]map[string]int{}}
}

func (b *book) count(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[what]++
}

func (b *book) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

func (b *book) acceptSandbox(id string, k kind) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sandboxes[id] = k
	b.counts["sandboxes accepted"]++
}

// undeleted returns the accepted sandboxes that no client tried to delete, sorted.
func (b *book) undeleted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for id := range b.sandboxes {
		if b.tries[id]["delete"] == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (b *book) acceptExec(id, sandbox string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.execs[id] = sandbox
}

// try records one call, before the call.
func (b *book) try(verb, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tries[id] == nil {
		b.tries[id] = map[string]int{}
	}
	b.tries[id][verb]++
}

func (b *book) acceptPrompt(t task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prompts = append(b.prompts, t)
}

func (b *book) write(w io.Writer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(b.counts)) {
		fmt.Fprintf(w, "  %-48s %6d\n", what, b.counts[what])
	}
}
