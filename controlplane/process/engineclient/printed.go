package engineclient

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What the verbs of the engine binary print; docs/design/engine-cli.md has the shapes. Keys that
// are not named here are of no use.

type printedInfo struct {
	Name                      string `json:"name"`
	Size                      int64  `json:"size"`
	Endpoint                  string `json:"endpoint"`
	Frontend                  string `json:"frontend"`
	FrontendState             string `json:"frontendState"`
	IsExpanding               bool   `json:"isExpanding"`
	LastExpansionError        string `json:"lastExpansionError"`
	UnmapMarkSnapChainRemoved bool   `json:"unmapMarkSnapChainRemoved"`
	SnapshotMaxCount          int    `json:"snapshotMaxCount"`
	SnapshotMaxSize           int64  `json:"SnapshotMaxSize"`
}

type printedRebuild struct {
	Error        string `json:"error"`
	IsRebuilding bool   `json:"isRebuilding"`
	Progress     int    `json:"progress"`
	State        string `json:"state"`
	// Older binaries print one address, newer ones a list.
	FromReplicaAddress     string   `json:"fromReplicaAddress"`
	FromReplicaAddressList []string `json:"fromReplicaAddressList"`
}

type printedPurge struct {
	Error     string `json:"error"`
	IsPurging bool   `json:"isPurging"`
	Progress  int    `json:"progress"`
	State     string `json:"state"`
}

type printedSnapshot struct {
	Name        string            `json:"name"`
	Parent      string            `json:"parent"`
	Children    map[string]bool   `json:"children"`
	Removed     bool              `json:"removed"`
	UserCreated bool              `json:"usercreated"`
	Created     string            `json:"created"`
	Size        string            `json:"size"`
	Labels      map[string]string `json:"labels"`
}

type printedVersion struct {
	ServerVersion *struct {
		Version                 string `json:"version"`
		GitCommit               string `json:"gitCommit"`
		BuildDate               string `json:"buildDate"`
		CLIAPIVersion           int64  `json:"cliAPIVersion"`
		CLIAPIMinVersion        int64  `json:"cliAPIMinVersion"`
		ControllerAPIVersion    int64  `json:"controllerAPIVersion"`
		ControllerAPIMinVersion int64  `json:"controllerAPIMinVersion"`
		DataFormatVersion       int64  `json:"dataFormatVersion"`
		DataFormatMinVersion    int64  `json:"dataFormatMinVersion"`
	} `json:"serverVersion"`
}

// read runs a verb and reads the JSON it prints.
func read[T any](ctx context.Context, b *Binary, t Target, verb ...string) (T, error) {
	var v T
	what := strings.Join(verb, " ")
	out, err := b.simple(ctx, t, what, verb...)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return v, failed(t, what, ErrUnavailable, "the engine binary's answer cannot be read: "+err.Error())
	}
	return v, nil
}

// Get implements Client. The parts are asked for one after the other and may be of different
// moments.
func (b *Binary) Get(ctx context.Context, t Target) (State, error) {
	info, err := read[printedInfo](ctx, b, t, "info")
	if err != nil {
		return State{}, err
	}
	rebuilds, err := read[map[string]printedRebuild](ctx, b, t, "replica-rebuild-status")
	if err != nil {
		return State{}, err
	}
	purges, err := read[map[string]printedPurge](ctx, b, t, "snapshots", "purge-status")
	if err != nil {
		return State{}, err
	}
	snapshots, err := read[map[string]printedSnapshot](ctx, b, t, "snapshots", "info")
	if err != nil {
		return State{}, err
	}
	table, err := b.simple(ctx, t, "ls-replica", "ls-replica")
	if err != nil {
		return State{}, err
	}
	s := State{
		Volume: info.Name, Engine: t.Engine, SizeBytes: info.Size, Frontend: info.Frontend,
		FrontendUp: info.FrontendState == "up",
		Endpoint:   info.Endpoint, Expanding: info.IsExpanding, LastExpansionError: info.LastExpansionError,
		Options: Options{SnapshotMaxCount: &info.SnapshotMaxCount, SnapshotMaxSizeBytes: &info.SnapshotMaxSize,
			UnmapMarkSnapChainRemoved: &info.UnmapMarkSnapChainRemoved},
		Snapshots: make(map[string]Snapshot, len(snapshots)),
	}
	for name, p := range snapshots {
		if s.Snapshots[name], err = p.snapshot(); err != nil {
			return State{}, failed(t, "snapshots info", ErrUnavailable, err.Error())
		}
	}
	if s.Clone, err = b.SnapshotCloneStatus(ctx, t); err != nil {
		return State{}, err
	}
	if s.Restore, err = b.BackupRestoreStatus(ctx, t); err != nil {
		return State{}, err
	}
	if s.Replicas, err = replicasPrinted(table, rebuilds, purges); err != nil {
		return State{}, failed(t, "ls-replica", ErrUnavailable, err.Error())
	}
	return s, nil
}

// replicasPrinted reads the table ADDRESS MODE CHAIN. A mode that cannot be understood counts as
// ERR.
func replicasPrinted(table []byte, rebuilds map[string]printedRebuild, purges map[string]printedPurge) ([]Replica,
	error) {
	var out []Replica
	lines := bufio.NewScanner(bytes.NewReader(table))
	lines.Buffer(nil, 1<<20) // a chain of 250 names on one line
	for first := true; lines.Scan(); first = false {
		f := strings.Fields(lines.Text())
		if first && len(f) > 0 && f[0] == "ADDRESS" || len(f) == 0 {
			continue
		}
		if len(f) < 2 {
			return nil, fmt.Errorf("line %q of the table of replicas has no mode", lines.Text())
		}
		r := Replica{Address: plain(f[0]), Mode: ModeERR, Rebuild: rebuilds[f[0]].rebuild(), Purge: purges[f[0]].purge()}
		switch f[1] {
		case "RW":
			r.Mode = ModeRW
		case "WO":
			// The table has no word for a replica that the engine has not judged yet.
			if r.Mode = ModeWO; r.Rebuild == nil {
				r.Mode = ModePending
			}
		}
		if r.Mode == ModeERR && r.Rebuild != nil {
			r.Error = r.Rebuild.Error
		}
		out = append(out, r)
	}
	return out, lines.Err()
}

func (p printedRebuild) rebuild() *Rebuild {
	if !p.IsRebuilding && p.State == "" && p.Error == "" {
		return nil
	}
	from := p.FromReplicaAddress
	if len(p.FromReplicaAddressList) > 0 {
		from = p.FromReplicaAddressList[0]
	}
	return &Rebuild{Running: p.IsRebuilding, Percent: min(max(p.Progress, 0), 100), State: p.State, Error: p.Error,
		From: plain(from)}
}

func (p printedPurge) purge() *Purge {
	if !p.IsPurging && p.State == "" && p.Error == "" {
		return nil
	}
	return &Purge{Running: p.IsPurging, Percent: min(max(p.Progress, 0), 100), State: p.State, Error: p.Error}
}

func (p printedSnapshot) snapshot() (Snapshot, error) {
	size, err := strconv.ParseInt(p.Size, 10, 64)
	if err != nil {
		return Snapshot{}, fmt.Errorf("size %q of snapshot %s is no number", p.Size, p.Name)
	}
	s := Snapshot{Name: p.Name, Parent: p.Parent, Removed: p.Removed, UserCreated: p.UserCreated, Created: p.Created,
		SizeBytes: size, Labels: p.Labels}
	for _, child := range sortedKeys(p.Children) {
		if p.Children[child] {
			s.Children = append(s.Children, child)
		}
	}
	return s, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Version implements Client.
func (b *Binary) Version(ctx context.Context, t Target) (Version, error) {
	p, err := read[printedVersion](ctx, b, t, "version")
	if err != nil {
		return Version{}, err
	}
	v := p.ServerVersion
	if v == nil {
		return Version{}, failed(t, "version", ErrUnavailable, "the engine did not say")
	}
	return Version{
		Version: v.Version, GitCommit: v.GitCommit, BuildDate: v.BuildDate,
		CLIAPIVersion: v.CLIAPIVersion, CLIAPIMinVersion: v.CLIAPIMinVersion,
		ControllerAPIVersion: v.ControllerAPIVersion, ControllerAPIMinVersion: v.ControllerAPIMinVersion,
		DataFormatVersion: v.DataFormatVersion, DataFormatMinVersion: v.DataFormatMinVersion,
	}, nil
}

// Watch implements Client by asking at intervals.
func (b *Binary) Watch(ctx context.Context, t Target, observe func(State)) error {
	for {
		s, err := b.Get(ctx, t)
		if err != nil {
			return err
		}
		observe(s)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		case <-b.ctx.Done():
			return fmt.Errorf("%w: the client was closed", ErrUnavailable)
		case <-time.After(b.every(settled(s))):
		}
	}
}

// settled tells whether nothing is on its way that somebody waits for.
func settled(s State) bool {
	busy := slices.ContainsFunc(s.Replicas, func(r Replica) bool {
		return r.Mode == ModePending || r.Mode == ModeWO || r.Purge != nil && r.Purge.Running
	})
	return (s.Frontend == "" || s.FrontendUp) && !s.Expanding && !s.Clone.Running && !busy
}
