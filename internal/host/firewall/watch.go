package firewall

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/netrules"
)

// memory holds what the table was seen to have, as long as a watch reports every change of it by others: then Holds needs not read it.
type memory struct {
	mu sync.Mutex
	// watched: a watch runs. changes counts what it reported.
	watched bool
	changes uint64
	held    map[string]netrules.Rules
}

// epoch is a point in time that a later remember refers to.
func (m *memory) epoch() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changes
}

// remember records that the table had these rules after an epoch.
func (m *memory) remember(r netrules.Rules, since uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.watched || m.changes != since {
		return
	}
	m.held[r.Bridge] = r
}

func (m *memory) forget(bridge string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, bridge)
}

// has reports whether the table is known to have these rules.
func (m *memory) has(r netrules.Rules) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	held, ok := m.held[r.Bridge]
	return ok && held.Equal(r)
}

// reset drops everything: others have changed the table, or may have.
func (m *memory) reset(watched bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched, m.held = watched, map[string]netrules.Rules{}
	m.changes++
}

// Watch calls changed after each change of the table by another process but Admit, and whenever it may have missed one; while it runs, Holds answers
// from memory what nothing has changed since. It returns when ctx ends, or with an error when the kernel reports no changes any more.
// changed must not block.
func (f *Firewall) Watch(ctx context.Context, changed func()) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: f.netns})
	if err != nil {
		return fmt.Errorf("connect to nftables: %w", err)
	}
	closed := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer func() {
		if closed() {
			_ = c.Close()
		}
	}()
	_ = c.SetReadBuffer(bufferBytes) // a smaller buffer overflows sooner, which is a change that was missed
	if err := c.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	f.seen.reset(true)
	defer f.seen.reset(false)
	touched := false // by the change whose messages are being read; its last one says who made it
	for {
		messages, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			touched = false
			f.seen.reset(true)
			changed()
			continue
		case err != nil:
			return fmt.Errorf("watch nftables: %w", err)
		}
		for _, m := range messages {
			switch {
			case m.Header.Type != generationType:
				touched = touched || firstString(m.Data) == TableName && !isAdmission(m)
			case touched:
				touched = false
				if !ownThread(m.Data) {
					f.seen.reset(true)
					changed()
				}
			}
		}
	}
}

// generationType is the type of the message that ends the messages about a change.
const generationType = netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN)

// headerBytes is the length of struct nfgenmsg, which precedes the attributes.
const headerBytes = 4

// firstString returns the attribute with the number 1, which in each message about a change is the name of its table.
func firstString(data []byte) string { return stringOf(data, 1) }

func stringOf(data []byte, attribute uint16) (text string) {
	eachAttribute(data, func(ad *netlink.AttributeDecoder) {
		if ad.Type() == attribute {
			text = ad.String()
		}
	})
	return text
}

// isAdmission reports whether a message is about elements of a set that Admit fills. Holds does not look at them.
func isAdmission(m netlink.Message) bool {
	switch m.Header.Type {
	case unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM, unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_DELSETELEM:
		return isResolved(stringOf(m.Data, unix.NFTA_SET_ELEM_LIST_SET))
	}
	return false
}

// ownThread reports whether a thread of this process made the change. Of a thread that has ended it does not.
func ownThread(data []byte) (own bool) {
	eachAttribute(data, func(ad *netlink.AttributeDecoder) {
		if ad.Type() == unix.NFTA_GEN_PROC_PID {
			_, err := os.Stat("/proc/self/task/" + strconv.Itoa(int(ad.Uint32())))
			own = err == nil
		}
	})
	return own
}

func eachAttribute(data []byte, do func(*netlink.AttributeDecoder)) {
	if len(data) < headerBytes {
		return
	}
	ad, err := netlink.NewAttributeDecoder(data[headerBytes:])
	if err != nil {
		return
	}
	ad.ByteOrder = binary.BigEndian
	for ad.Next() {
		do(ad)
	}
}
