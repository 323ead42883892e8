package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// eventRow is an event as the API gives it, with the part that is shown.
type eventRow struct {
	resource.Event
	e eventFields
}

// eventFields is the part of a Kubernetes event that is shown. Times are RFC 3339, empty where the
// reporter left them out.
type eventFields struct {
	Metadata       struct{ Name string }
	InvolvedObject struct{ Kind, Name string }
	Type           string
	Reason         string
	Message        string
	Count          int
	FirstTimestamp string
	LastTimestamp  string
	EventTime      string
	Series         *struct {
		Count            int
		LastObservedTime string
	}
	Source             struct{ Component, Host string }
	ReportingComponent string
}

// last is when the event was seen last.
func (e *eventFields) last() string {
	if e.Series != nil && e.Series.LastObservedTime != "" {
		return e.Series.LastObservedTime
	}
	return output.FirstText(e.LastTimestamp, e.EventTime, e.FirstTimestamp)
}

func (e *eventFields) first() string {
	return output.FirstText(e.FirstTimestamp, e.EventTime, e.LastTimestamp)
}

func (e *eventFields) count() int {
	if e.Series != nil {
		return max(e.Series.Count, 1)
	}
	return max(e.Count, 1)
}

// object is the event's object in the words of this command: "engine-image/ei-1".
func (e *eventFields) object() string {
	return kebab(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
}

// kebab writes the name of a kind as commands do: InstanceManager is instance-manager.
func kebab(kind string) string {
	var b strings.Builder
	for i, r := range kind {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func eventKind(now func() time.Time) output.Kind[eventRow] {
	return output.Kind[eventRow]{
		Name: "event", Id: func(r eventRow) string { return r.e.Metadata.Name },
		None: "no events; Kubernetes forgets them after an hour",
		Columns: []output.Column[eventRow]{
			{Header: "LAST SEEN", Right: true, Value: func(r eventRow) string { return output.Age(r.e.last(), now()) },
				Number: func(r eventRow) float64 { return output.AgeSeconds(r.e.last(), now()) }},
			{Header: "TYPE", Value: func(r eventRow) string { return r.e.Type }},
			{Header: "REASON", Value: func(r eventRow) string { return r.e.Reason }},
			{Header: "OBJECT", Value: func(r eventRow) string { return r.e.object() }},
			{Header: "COUNT", Right: true, Value: func(r eventRow) string { return strconv.Itoa(r.e.count()) }},
			{Header: "FIRST SEEN", Wide: true, Right: true,
				Value:  func(r eventRow) string { return output.Age(r.e.first(), now()) },
				Number: func(r eventRow) float64 { return output.AgeSeconds(r.e.first(), now()) }},
			{Header: "FROM", Wide: true, Value: func(r eventRow) string {
				return output.FirstText(r.e.Source.Component, r.e.ReportingComponent)
			}},
			{Header: "MESSAGE", Value: func(r eventRow) string { return r.e.Message }},
		},
	}
}

// events reads all events, the oldest first.
func events(ctx context.Context, api *client.Client) ([]eventRow, error) {
	all, err := api.Events(ctx)
	if err != nil {
		return nil, err
	}
	rows := []eventRow{}
	for _, one := range all {
		row := eventRow{Event: one}
		text, err := json.Marshal(one.Event)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &row.e); err != nil {
			return nil, fmt.Errorf("event %s: %w", one.ID, resource.Plain(err))
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(x, y eventRow) int { return strings.Compare(x.e.last(), y.e.last()) })
	return rows, nil
}

// eventsOf picks the events of an object. object is KIND/NAME, or a name of any kind; those of a
// volume include its engines' and replicas'.
func eventsOf(rows []eventRow, object string) []eventRow {
	wantKind, name, ok := strings.Cut(object, "/")
	if !ok {
		wantKind, name = "", object
	}
	part := regexp.MustCompile(`^(engine|replica)/` + regexp.QuoteMeta(name) + `-[er]-[0-9a-f]+$`)
	out := []eventRow{}
	for _, r := range rows {
		o := r.e.object()
		same := r.e.InvolvedObject.Name == name && (wantKind == "" || kebab(r.e.InvolvedObject.Kind) == wantKind)
		if same || (wantKind == "" || wantKind == "volume") && part.MatchString(o) {
			out = append(out, r)
		}
	}
	return out
}

// newerThan picks the events that were seen within a time.
func newerThan(rows []eventRow, within time.Duration, now time.Time) []eventRow {
	out := []eventRow{}
	for _, r := range rows {
		if output.AgeSeconds(r.e.last(), now) <= within.Seconds() {
			out = append(out, r)
		}
	}
	return out
}

func (a lookApp) eventCommands() *cobra.Command {
	c := &cobra.Command{Use: "event", Aliases: []string{"events"}, Short: "What the system has reported of its objects"}
	var object, kindOfEvent string
	var since time.Duration
	list := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List events, the newest last",
		Args: usage.Exactly(),
		Long: "List events, the newest last. Kubernetes keeps them for an hour. Events of a volume include those of its engines\n" +
			"and replicas.",
		Example: "  ankole event list --for volume/demo\n  ankole event list --type Warning --since 10m\n" +
			"  ankole event list --filter reason~Rebuild --sort count"}
	k := eventKind(a.now)
	s := output.AddSelection(list, k)
	list.RunE = func(cmd *cobra.Command, _ []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		rows, err := events(cmd.Context(), api)
		if err != nil {
			return err
		}
		if object != "" {
			rows = eventsOf(rows, object)
			k.None = "no events of " + object + "; Kubernetes forgets them after an hour"
		}
		if since > 0 {
			rows = newerThan(rows, since, a.now())
		}
		if kindOfEvent != "" {
			rows = slices.DeleteFunc(rows, func(r eventRow) bool { return !strings.EqualFold(r.e.Type, kindOfEvent) })
		}
		return showSelected(a.app, k, rows, s)
	}
	f := list.Flags()
	f.StringVar(&object, "for", "", "object: KIND/NAME such as volume/demo, or a NAME of any kind")
	f.StringVar(&kindOfEvent, "type", "", "Normal or Warning")
	f.DurationVar(&since, "since", 0, "seen within this time, for instance 10m")
	_ = list.RegisterFlagCompletionFunc("type",
		cobra.FixedCompletions([]string{"Normal", "Warning"}, cobra.ShellCompDirectiveNoFileComp))
	a.addOutput(list)
	c.AddCommand(list)
	return c
}
