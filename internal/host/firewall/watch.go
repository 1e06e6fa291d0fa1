package firewall

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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
	// ours are the bridges that this process has asked about, or set rules for.
	ours map[string]bool
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

// forget drops what is known of a bridge. kept: rules of it are still of interest.
func (m *memory) forget(bridge string, kept bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, bridge)
	if m.ours == nil {
		m.ours = map[string]bool{}
	}
	if m.ours[bridge] = kept; !kept {
		delete(m.ours, bridge)
	}
}

// concern reports whether a change by others is about a bridge of interest, and has Holds read the table again if so.
func (m *memory) concern(c change) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++ // what is being read may be older
	ours := c.all
	for bridge := range c.bridges {
		ours = ours || m.ours[bridge]
		delete(m.held, bridge)
	}
	if c.all {
		clear(m.held)
	}
	return ours
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

// Watch calls changed after each change by another process of what the table has of bridges that this Firewall was asked about, or of what they share, and
// whenever it may have missed one; while it runs, Holds answers from memory what nothing has changed since. It returns when ctx ends, or with an error when the kernel reports no changes any more.
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
	var seen change // whose messages are being read; the last one says who made it
	for {
		messages, err := c.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			seen = change{}
			f.seen.reset(true)
			changed()
			continue
		case err != nil:
			return fmt.Errorf("watch nftables: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type != generationType {
				seen.add(m)
				continue
			}
			if seen.some() && !ownThread(m.Data) && f.seen.concern(seen) {
				changed()
			}
			seen = change{}
		}
	}
}

// generationType is the type of the message that ends the messages about a change.
const generationType = netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN)

// headerBytes is the length of struct nfgenmsg, which precedes the attributes.
const headerBytes = 4

// change is what a change of the table is about.
type change struct {
	bridges map[string]bool
	all     bool // what all bridges share
}

func (c *change) some() bool { return c.all || len(c.bridges) > 0 }

// add adds what a message is about. Elements that Admit or packets add do not count: Holds does not look at them.
func (c *change) add(m netlink.Message) {
	if stringOf(m.Data, unix.NFTA_TABLE_NAME) != TableName { // the number of this attribute is the same in all messages
		return
	}
	switch m.Header.Type &^ (unix.NFNL_SUBSYS_NFTABLES << 8) {
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		set := stringOf(m.Data, unix.NFTA_SET_ELEM_LIST_SET)
		switch {
		case isResolved(set), isRecord(set):
		case isMap(set):
			c.addKeys(m.Data)
		default:
			c.addName(set)
		}
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_DELSET:
		c.addName(stringOf(m.Data, unix.NFTA_SET_NAME))
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		c.addName(stringOf(m.Data, unix.NFTA_RULE_CHAIN))
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		c.addName(stringOf(m.Data, unix.NFTA_CHAIN_NAME))
	default:
		c.all = true
	}
}

// addName adds the bridge that a chain or a set belongs to; all bridges share the others.
func (c *change) addName(name string) {
	for _, h := range hooks {
		if bridge, ok := strings.CutPrefix(name, h.list+"-"); ok {
			c.addBridge(bridge)
			return
		}
	}
	if bridge, _, ok := strings.Cut(name, "."); ok {
		c.addBridge(bridge)
		return
	}
	c.all = true
}

func (c *change) addBridge(bridge string) {
	if c.bridges == nil {
		c.bridges = map[string]bool{}
	}
	c.bridges[bridge] = true
}

// addKeys adds the bridges of elements of a map.
func (c *change) addKeys(data []byte) {
	only := func(attribute uint16, do func(*netlink.AttributeDecoder) error) func(*netlink.AttributeDecoder) error {
		return func(ad *netlink.AttributeDecoder) error {
			for ad.Next() {
				if ad.Type() == attribute {
					ad.Nested(do)
				}
			}
			return ad.Err()
		}
	}
	key := func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() == unix.NFTA_DATA_VALUE {
				c.addBridge(string(bytes.TrimRight(ad.Bytes(), "\x00")))
			}
		}
		return ad.Err()
	}
	eachAttribute(data, func(ad *netlink.AttributeDecoder) {
		if ad.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			ad.Nested(only(unix.NFTA_LIST_ELEM, only(unix.NFTA_SET_ELEM_KEY, key)))
		}
	})
}

func stringOf(data []byte, attribute uint16) (text string) {
	eachAttribute(data, func(ad *netlink.AttributeDecoder) {
		if ad.Type() == attribute {
			text = ad.String()
		}
	})
	return text
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
