// Command storm tests the crash contract under faults. Clients use the API of an agboxd that is killed at random moments, whose engine
// gives wrong answers, whose disk fills up and whose sandboxes run out of memory. Then the faults end, all objects converge, and the
// auditor and the programs' own ledger report any loss; a loss is a failure. A seed repeats the schedule of actions and faults, but not the
// interleaving. It needs root, a Docker engine and the image agbox-base:dev, and leaves only evidence of violations behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	agbox "github.com/agbox/agbox/client"
)

func main() {
	duration := flag.Duration("duration", 2*time.Minute, "how long the storm lasts; rest and audit follow")
	seed := flag.Uint64("seed", 1, "of the schedule")
	faults := flag.String("faults", "kill,proxy,enospc,oom,clock", "of "+strings.Join(allFaults, ","))
	clients := flag.Int("clients", 3, "users of the API")
	keep := flag.Bool("keep", false, "keep the directory of evidence although nothing was violated")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *duration, *seed, *faults, *clients, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, duration time.Duration, seed uint64, faultList string, clients int, keep bool) (err error) {
	faults, err := parseFaults(faultList)
	if err != nil {
		return err
	}
	socket, err := engineSocket()
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "agbox-storm-")
	if err != nil {
		return err
	}
	s := &storm{seed: seed, faults: faults, site: &site{home: home, socket: socket}, book: newBook()}
	s.daemon = &daemon{site: s.site}
	defer func() { err = errors.Join(err, s.clean(err != nil || keep)) }()
	if err := os.Chmod(home, 0o755); err != nil { // its programs are mounted into sandboxes
		return err
	}
	if err := s.site.build(ctx, s.has(faultENOSPC)); err != nil {
		return err
	}
	if s.proxy, err = newProxy(s.site.engine(), s.site.socket, seed, s.book.count); err != nil {
		return err
	}
	if err := s.daemon.start(); err != nil {
		return err
	}
	conn, err := s.daemon.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	fmt.Printf("storm: seed %d, %s, faults %s, evidence in %s\n", seed, duration, strings.Join(faults, ","), home)
	start := time.Now()
	if s.has(faultProxy) {
		if err := s.anchor(ctx, agbox.New(conn)); err != nil {
			return err
		}
	}
	if err := s.rage(ctx, conn, duration, clients); err != nil {
		return err
	}
	if err := s.judge(ctx, conn); err != nil {
		return err
	}
	fmt.Printf("\nseed %d, %s in all:\n", seed, time.Since(start).Round(time.Second))
	s.book.write(os.Stdout)
	for _, p := range s.book.problems {
		fmt.Println("VIOLATION " + p)
	}
	if n := len(s.book.problems); n > 0 {
		return fmt.Errorf("%d violations; seed %d, evidence in %s", n, seed, home)
	}
	fmt.Println("losses 0, violations 0")
	return nil
}

// rage runs clients and faults for the duration, and waits for all of them.
func (s *storm) rage(ctx context.Context, conn *grpc.ClientConn, duration time.Duration, clients int) error {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	api := agboxv1.NewSandboxServiceClient(conn)
	var wg sync.WaitGroup
	for n := range clients {
		wg.Go(func() { newClient(n, s, conn).run(ctx) })
		wg.Go(func() { follow(ctx, api, s.book, n) })
	}
	loops := map[string]func(context.Context) error{faultKill: s.kills, faultProxy: s.lie, faultENOSPC: s.fill, faultClock: s.step, faultOutside: s.interfere}
	failed := make(chan error, len(loops)+1)
	for fault, loop := range loops {
		if s.has(fault) {
			wg.Go(func() { failed <- loop(ctx) })
		}
	}
	wg.Go(func() { failed <- s.watch(ctx) })
	wg.Wait()
	close(failed)
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clean removes all objects from the engine and all processes; it keeps the evidence only if keep is set.
func (s *storm) clean(keep bool) error {
	s.daemon.end()
	err := s.site.sweep()
	if s.proxy != nil {
		s.proxy.close()
	}
	if keep {
		err = errors.Join(err, s.site.keepData())
	}
	err = errors.Join(err, s.site.unmount())
	if !keep {
		err = errors.Join(err, os.RemoveAll(s.site.home))
	}
	return err
}
