package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agbox/agbox/apis/enum"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// rowStyle is a choice of columns, which all start with NAME, ID and STATE.
type rowStyle int

const (
	quiet rowStyle = iota // every sandbox is at rest
	noisy                 // the reason for some is shown in place of the image
	full                  // -o wide
)

func (s rowStyle) header() []string {
	switch s {
	case noisy:
		return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "STATUS"}
	case full:
		return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "DEADLINE", "RESTARTS", "IMAGE", "PORTS", "STATUS"}
	}
	return []string{"NAME", "ID", "STATE", "EXECS", "AGE", "IMAGE"}
}

// Columns that change with time alone. Only the full style has a deadline.
const ageColumn, deadlineColumn = 4, 5

func (s rowStyle) row(sb *agboxv1.SandboxHandle) []string {
	name, id := dash(sb.GetName()), sb.GetSandboxId()
	if s != full {
		name, id = clip(name, nameWidth), id[:min(len(id), idWidth)]
	}
	row := []string{name, id, enum.Word(sb.GetState()), strconv.Itoa(int(sb.GetActiveExecs())), age(sb.GetCreatedAt().AsTime(), time.Now())}
	switch s {
	case quiet:
		return append(row, clip(sb.GetImage(), imageWidth))
	case noisy:
		if sb.GetErrorMessage() != "" {
			return append(row, oneLine(sb.GetErrorMessage())) // the code would fill the line
		}
		return append(row, oneLine(trouble(sb)))
	}
	return append(row, timeLeft(sb, time.Now()), strconv.Itoa(int(sb.GetRestarts())), sb.GetImage(), dash(portList(sb.GetPorts(), ",")),
		oneLine(cmp.Or(trouble(sb), demoted(sb))))
}

// news returns the cells of a row that do not change with time alone.
func (s rowStyle) news(sb *agboxv1.SandboxHandle, row []string) string {
	row = slices.Clone(row)
	row[ageColumn] = ""
	if s == full {
		row[deadlineColumn] = sb.GetDeadlineAt().String()
	}
	return strings.Join(row, "\x00")
}

// timeLeft is "1h23m", "passed", or "-" without a deadline.
func timeLeft(sb *agboxv1.SandboxHandle, now time.Time) string {
	switch at := sb.GetDeadlineAt(); {
	case at == nil:
		return "-"
	case at.AsTime().After(now):
		return span(at.AsTime().Sub(now))
	}
	return "passed"
}

// demoted returns a note for a PAUSED sandbox that was stopped.
func demoted(sb *agboxv1.SandboxHandle) string {
	if sb.GetDemotedAt() == nil {
		return ""
	}
	return "demoted: stopped to free its memory"
}

func dash(s string) string { return cmp.Or(s, "-") }

// portList is "127.0.0.1:49153->8080/tcp", with the service's name in front of a service's ports.
func portList(ports []*agboxv1.PublishedPort, separator string) string {
	var all []string
	for _, p := range ports {
		text := fmt.Sprintf("127.0.0.1:%d->%d/%s", p.GetHostPort(), p.GetContainerPort(), p.GetProtocol())
		if p.GetServiceName() != "" {
			text = p.GetServiceName() + "=" + text
		}
		all = append(all, text)
	}
	return strings.Join(all, separator)
}

// trouble returns why a sandbox is not at rest, or "".
func trouble(sb *agboxv1.SandboxHandle) string {
	switch {
	case sb.GetErrorCode() != "":
		return sb.GetErrorCode() + ": " + sb.GetErrorMessage()
	case sb.GetStatusMessage() != "":
		return sb.GetStatusMessage()
	case sb.GetDesiredState() == wantStopped:
		return "stopping"
	case sb.GetDesiredState() == wantPaused:
		return "pausing"
	}
	return failedServices(sb)
}

func failedServices(sb *agboxv1.SandboxHandle) string {
	var names []string
	for _, s := range sb.GetServices() {
		if s.GetState() == serviceFailed && sb.GetState() == agboxv1.SandboxState_SANDBOX_STATE_READY {
			names = append(names, s.GetName())
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "service failed: " + strings.Join(names, ", ")
}

// serviceFailed is the ServiceStatus.state of a failed service.
const serviceFailed = "FAILED"
