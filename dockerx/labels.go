package dockerx

import (
	"github.com/docker/docker/api/types/filters"
)

// labelFilter returns the engine's filter for labels, which must all match; an empty value matches the key alone.
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

// LabelsMatch applies the engine's filter to the labels of one object: want must all match, an empty value matches the key alone.
func LabelsMatch(have, want map[string]string) bool {
	for k, v := range want {
		got, ok := have[k]
		if !ok || v != "" && got != v {
			return false
		}
	}
	return true
}
