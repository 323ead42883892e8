package imrpc_test

import (
	"encoding/json"
	"os"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"ankole.storage/api/rpc/imrpc"
)

// firstAddition is the lowest field number of our own; the fact table knows nothing of fields from there on.
const firstAddition = 1000

// facts is the interface of the reference: what clients of it send and read.
type facts struct {
	Service string
	Methods []struct {
		Name, Request, Response string
		ServerStream            bool
	}
	Messages map[string][]struct {
		Number     int
		Name, Type string
	}
}

func readFacts(t *testing.T) facts {
	t.Helper()
	text, err := os.ReadFile("testdata/process-manager.json")
	if err != nil {
		t.Fatal(err)
	}
	var f facts
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Methods) != 8 || len(f.Messages) != 12 {
		t.Fatalf("the fact table has %d methods and %d messages, want 8 and 12", len(f.Methods), len(f.Messages))
	}
	return f
}

// TestMethods: the path of each method is /ProcessManagerService/<name>, with the message types of the table.
func TestMethods(t *testing.T) {
	f := readFacts(t)
	service := imrpc.File_imrpc_process_proto.Services().Get(0)
	if string(service.FullName()) != f.Service || imrpc.ProcessManagerService_ServiceDesc.ServiceName != f.Service {
		t.Errorf("service %s, want %s", service.FullName(), f.Service)
	}
	if got := service.Methods().Len(); got != len(f.Methods) {
		t.Errorf("%d methods, want %d", got, len(f.Methods))
	}
	for _, want := range f.Methods {
		m := service.Methods().ByName(protoreflect.Name(want.Name))
		if m == nil {
			t.Errorf("method %s is missing", want.Name)
			continue
		}
		if string(m.Input().Name()) != want.Request || string(m.Output().Name()) != want.Response ||
			m.IsStreamingServer() != want.ServerStream || m.IsStreamingClient() {
			t.Errorf("%s: %s -> %s (stream %v)", want.Name, m.Input().Name(), m.Output().Name(), m.IsStreamingServer())
		}
	}
}

// TestMessages: every field of the table exists with its number, name and type, and nothing else below firstAddition.
func TestMessages(t *testing.T) {
	f := readFacts(t)
	messages := imrpc.File_imrpc_process_proto.Messages()
	if messages.Len() != len(f.Messages) {
		t.Errorf("%d messages, want %d", messages.Len(), len(f.Messages))
	}
	for name, fields := range f.Messages {
		m := messages.ByName(protoreflect.Name(name))
		if m == nil {
			t.Errorf("message %s is missing", name)
			continue
		}
		if m.FullName() != protoreflect.FullName(name) {
			t.Errorf("message %s is in a package: %s", name, m.FullName())
		}
		for _, want := range fields {
			field := m.Fields().ByNumber(protoreflect.FieldNumber(want.Number))
			if field == nil {
				t.Errorf("%s: field %d (%s) is missing", name, want.Number, want.Name)
				continue
			}
			if string(field.Name()) != want.Name || typeOf(field) != want.Type {
				t.Errorf("%s: field %d is %s %s, want %s %s", name, want.Number, field.Name(), typeOf(field), want.Name, want.Type)
			}
		}
		known := 0
		for i := range m.Fields().Len() {
			if m.Fields().Get(i).Number() < firstAddition {
				known++
			}
		}
		if known != len(fields) {
			t.Errorf("%s has %d fields below %d, want %d", name, known, firstAddition, len(fields))
		}
	}
}

// typeOf writes a field's type as the table does.
func typeOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map<" + typeOf(f.MapKey()) + "," + typeOf(f.MapValue()) + ">"
	case f.Message() != nil && f.IsList():
		return "repeated " + string(f.Message().Name())
	case f.Message() != nil:
		return string(f.Message().Name())
	case f.IsList():
		return "repeated " + f.Kind().String()
	}
	return f.Kind().String()
}
