// Package nearest finds the word that an unknown one most probably means.
package nearest

import (
	"strings"

	"github.com/agext/levenshtein"
)

// minPart is the shortest part of a word that stands for the whole word.
const minPart = 3

// Of returns the known word that word most probably means, or "" if none is near: the one with the smallest number of edits, at most a
// third of the length; else the only one that starts or ends with the word, as "memory" means memory_limit. It ignores case, "_" and "-".
func Of(word string, known []string) string {
	folded := fold(word)
	best, bestEdits := "", len(folded)/3+1
	for _, candidate := range known {
		if n := levenshtein.Distance(folded, fold(candidate), nil); n < bestEdits {
			best, bestEdits = candidate, n
		}
	}
	if best != "" || len(folded) < minPart {
		return best
	}
	for _, candidate := range known {
		whole := fold(candidate)
		if !strings.HasPrefix(whole, folded) && !strings.HasSuffix(whole, folded) {
			continue
		}
		if best != "" {
			return "" // ambiguous
		}
		best = candidate
	}
	return best
}

func fold(word string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(word))
}
