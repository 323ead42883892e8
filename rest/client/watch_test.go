package client

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"ankole.storage/rest/resource"
)

// scripted is a server whose stream of volumes has some messages; the next stream, those after.
func scripted(t *testing.T, asked *[]string, streams ...[]string) *httptest.Server {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.String())
		u := websocket.Upgrader{EnableCompression: true}
		conn, err := u.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if len(streams) == 0 {
			return
		}
		messages := streams[0]
		streams = streams[1:]
		for _, text := range messages {
			_ = conn.WriteMessage(websocket.TextMessage, []byte(text))
		}
	}))
	t.Cleanup(web.Close)
	return web
}

// inShort is a list of volumes in a few letters.
func inShort(all []resource.Volume) string {
	var out []string
	for _, v := range all {
		out = append(out, v.ID+"="+v.State)
	}
	return strings.Join(out, " ")
}

func volumesText(volumes ...string) string {
	var data []string
	for _, v := range volumes {
		id, state, _ := strings.Cut(v, "=")
		data = append(data, fmt.Sprintf(`{"id":%q,"type":"volume","name":%[1]q,"state":%q}`, id, state))
	}
	return "[" + strings.Join(data, ",") + "]"
}

func wholeText(volumes ...string) string {
	return `{"type":"collection","resourceType":"volume","links":{},"data":` + volumesText(volumes...) + `}`
}

func changesText(removed string, volumes ...string) string {
	return `{"type":"changes","resourceType":"volume","removed":[` + removed + `],"data":` + volumesText(volumes...) + `}`
}

// TestWatchTakesBothForms: a server that knows of deltas and an older one that sends whole lists
// lead to the same; what was shown before stays as it was; a new stream begins anew, and changes of
// nothing end it.
func TestWatchTakesBothForms(t *testing.T) {
	for name, streams := range map[string][][]string{
		"older": {{wholeText("a=on", "c=on"), wholeText("a=on", "b=new", "c=off"), wholeText("b=new"), wholeText()},
			{wholeText("d=on")}},
		"deltas": {{wholeText("a=on", "c=on"), changesText("", "b=new", "c=off"), changesText(`"a","c","x"`),
			changesText(`"b"`)}, {changesText("", "z=lost")}, {wholeText("d=on")}},
		"both": {{wholeText("a=on", "c=on"), changesText("", "b=new", "c=off"), wholeText("b=new"), changesText(`"b"`)},
			{wholeText("d=on")}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			c := newClient(t, scripted(t, &asked, streams...).URL)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var shown [][]resource.Volume
			var texts []string
			must(t, c.WatchVolumes(ctx, nil, func(all []resource.Volume) error {
				shown = append(shown, all)
				texts = append(texts, inShort(all))
				if len(all) == 1 && all[0].ID == "d" {
					return ErrStop
				}
				return nil
			}))
			want := []string{"a=on c=on", "a=on b=new c=off", "b=new", "", "d=on"}
			if !slices.Equal(texts, want) {
				t.Errorf("seen %q, want %q", texts, want)
			}
			for i, all := range shown {
				if got := inShort(all); got != texts[i] {
					t.Errorf("list %d was %q when it was shown and is %q", i, texts[i], got)
				}
			}
			if asked[0] != "/v1/ws/volumes?deltas=true" || len(asked) != len(streams) {
				t.Errorf("asked for %q", asked)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
