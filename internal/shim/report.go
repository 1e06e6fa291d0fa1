package shim

import "github.com/agbox/agbox/internal/host/execjournal"

// report is the report of a start that is still to be written.
type report struct {
	due    bool
	failed bool   // an earlier attempt to write it failed
	why    string // why the sandbox could not start; empty: it has started
	main   bool   // the image's ENTRYPOINT is the main process
	warn   string // about a sandbox that has started
}

// write writes the report into the log directory if it is due, and returns whether nothing is left to write.
func (r *report) write(logs int) bool {
	if !r.due {
		return true
	}
	err := execjournal.Report(logs, execjournal.Start{Error: r.why, Main: r.main, Warning: r.warn})
	if err != nil && !r.failed {
		say("report the start: %v", err)
	}
	r.due, r.failed = err != nil, err != nil
	return err == nil
}

// reportStart writes the report that is due. After an error a rescan retries.
func (p *initProcess) reportStart() {
	if p.report.due && p.openLogs() && !p.report.write(p.logs) {
		p.retryIn(retryEvery)
	}
}
