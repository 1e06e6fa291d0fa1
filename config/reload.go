package config

import "reflect"

// Reload returns c with the values of next for all keys that a running daemon can reload. changed names the keys whose value
// changed; needRestart names the keys that differ but need a restart of the daemon.
func (c Config) Reload(next Config) (merged Config, changed, needRestart []string) {
	merged = c
	for _, k := range table {
		from, to := k.field(&next), k.field(&merged)
		switch {
		case reflect.DeepEqual(from.Interface(), to.Interface()):
		case k.Reload:
			to.Set(from)
			changed = append(changed, k.Name)
		default:
			needRestart = append(needRestart, k.Name)
		}
	}
	return merged, changed, needRestart
}
