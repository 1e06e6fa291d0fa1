package main

import (
	"errors"
	"fmt"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller/inspect"
	"github.com/agbox/agbox/internal/host/firewall"
	"github.com/agbox/agbox/internal/server/httpapi"
	"github.com/agbox/agbox/internal/server/mtls"
)

// checks returns the lines of /readyz.
func (d *daemon) checks() []httpapi.Check {
	store := httpapi.Check{Name: "store"}
	if damaged := d.store.Corrupt(); len(damaged) > 0 {
		store.Warning = fmt.Sprintf("%d damaged records are set aside; see the log", len(damaged))
	}
	checks := []httpapi.Check{
		store, d.diskCheck(), {Name: "records", Problem: d.rebuild.Sentence()}, {Name: "descriptors", Warning: d.files.Warning()}, watches(d.execs.Unwatched()),
		{Name: "clock", Warning: d.ctl.ClockWarning()},
		{Name: "engine", Problem: d.ctl.EngineProblem(), Warning: d.ctl.EngineWarning()},
		{Name: "sandboxes", Warning: d.ctl.Vanished()},
		{Name: "network", Warning: d.ctl.NetworkProblem()},
	}
	_, info := d.ctl.EngineRun()
	checks = append(checks, httpapi.Check{Name: "limits", Warning: inspect.Unenforced(info)})
	if d.tls != nil {
		checks = append(checks, httpapi.Check{Name: "tcp", Warning: d.identity.Load().ExpiryWarning(d.clock.Now())})
	}
	if cert := d.e2bCert.Load(); cert != nil {
		checks = append(checks, httpapi.Check{Name: "e2b", Warning: mtls.ExpiryWarning("e2b.cert", cert.Leaf.NotAfter, d.clock.Now())})
	}
	return checks
}

// doctor returns the checks of "agbox doctor": those of /readyz, and those of the engine, its kernel and the configuration's defaults.
func (d *daemon) doctor() []*agboxv1.DoctorCheck {
	all := []*agboxv1.DoctorCheck{{Name: "daemon", Status: inspect.DoctorOK, Text: "agboxd " + version + "."}}
	for _, c := range d.checks() {
		if c.Name == "engine" {
			c.Warning = "" // it is about live-restore, which has a check of its own
		}
		one := &agboxv1.DoctorCheck{Name: c.Name, Status: inspect.DoctorOK}
		switch {
		case c.Problem != "":
			one.Status, one.Text = inspect.DoctorProblem, c.Problem
		case c.Warning != "":
			one.Status, one.Text = inspect.DoctorWarning, c.Warning
		}
		all = append(all, one)
	}
	_, info := d.ctl.EngineRun()
	r := rules(*d.current.Load())
	if d.ctl.NetworkProblem() == "" {
		filter := firewall.New(0)
		closed, err := filter.Closed()
		all = append(all, inspect.HostFirewall(closed, errors.Join(err, filter.Close()), d.cfg.Runtime.DNSPort))
	}
	return append(all, inspect.Limits(info, inspect.Defaults{
		Profile: r.Profile, SecurityAllow: r.SecurityAllow, NetworkMode: r.NetworkMode, NetworkRequired: r.NetworkRequired, NetworkProblem: d.ctl.NetworkProblem(), MemoryLimit: r.MemoryLimit,
	})...)
}

// diskCheck returns the line of /readyz about disks: without free space agboxd accepts no new objects.
func (d *daemon) diskCheck() httpapi.Check {
	c := httpapi.Check{Name: "disk", Problem: d.disk.NoRoom()}
	if n := d.ctl.OverQuota(); n > 0 {
		c.Warning = fmt.Sprintf("%d sandboxes have used up artifacts.sandbox_max_bytes; see the log", n)
	}
	return c
}

// watches returns the line of /readyz about inotify. All processes of a user, including those in containers, share its instances and
// watches.
func watches(unwatched int) httpapi.Check {
	c := httpapi.Check{Name: "inotify"}
	if unwatched > 0 {
		c.Warning = fmt.Sprintf("the kernel gives no instance or watch for %d sandboxes; agboxd polls their execs several times a second. "+
			"Raise fs.inotify.max_user_instances and fs.inotify.max_user_watches, or find the processes that hold them", unwatched)
	}
	return c
}
