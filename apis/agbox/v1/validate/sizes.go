package validate

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/agbox/agbox/apis/quantity"
)

const (
	minSizeBytes = 16 << 20
	maxGPUs      = 128
)

// MemoryBytes reads a memory_limit or disk_limit, from 16 MiB to 1 PiB, as quantity.Bytes does. Empty gives 0, no limit.
func MemoryBytes(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	size, err := quantity.Bytes(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is %w", short(text), err)
	case size < minSizeBytes:
		return 0, fmt.Errorf("%s is out of range: 16MiB to 1PiB; leave it out for no limit", short(text))
	}
	return size, nil
}

var devicePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/=-]{0,127}$`)

// GPUs reads the gpus of a spec: -1 for all, a count, or the IDs of devices. Empty gives nothing. A lone number is a
// count, so a single device is asked for by its UUID.
func GPUs(text string) (count int, devices []string, err error) {
	switch {
	case text == "":
		return 0, nil, nil
	case text == "all":
		return -1, nil, nil
	case strings.Trim(text, "0123456789") == "":
		count, err = strconv.Atoi(text)
		if err != nil || count < 1 || count > maxGPUs {
			return 0, nil, fmt.Errorf("%s is not a count from 1 to %d; name a single device by its UUID", short(text), maxGPUs)
		}
		return count, nil, nil
	}
	devices = strings.Split(text, ",")
	if len(devices) > maxGPUs {
		return 0, nil, fmt.Errorf("lists %d devices; the limit is %d", len(devices), maxGPUs)
	}
	for i, id := range devices {
		if !devicePattern.MatchString(id) {
			return 0, nil, fmt.Errorf(`%s must be "all", a count, or device IDs separated by commas alone`, short(text))
		}
		if slices.Contains(devices[:i], id) {
			return 0, nil, fmt.Errorf("names device %s twice", short(id))
		}
	}
	return 0, devices, nil
}
