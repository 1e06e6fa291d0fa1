package dockerx

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
)

// readPull reads the progress of a pull to its end. An error in it has no status, only text: everything that is said
// after the engine found the image at the registry counts as broken off.
func readPull(stream io.Reader) error {
	for decoder := json.NewDecoder(stream); ; {
		var m struct {
			Detail *struct {
				Message string `json:"message"`
			} `json:"errorDetail"`
		}
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.Detail != nil {
			return fmt.Errorf("%s: %w", m.Detail.Message, errdefs.ErrUnavailable)
		}
	}
}
