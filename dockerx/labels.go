package dockerx

import (
	"github.com/docker/docker/api/types/filters"
)

// labelFilter makes the engine's filter of labels, which must all match; an empty value asks for the key alone.
func labelFilter(labels map[string]string) filters.Args {
	f := filters.NewArgs()
	for k, v := range labels {
		if v == "" {
			f.Add("label", k)
		} else {
			f.Add("label", k+"="+v)
		}
	}
	return f
}

// labelsMatch does the same on this side.
func labelsMatch(have, want map[string]string) bool {
	for k, v := range want {
		got, ok := have[k]
		if !ok || v != "" && got != v {
			return false
		}
	}
	return true
}
