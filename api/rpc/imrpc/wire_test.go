package imrpc_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"

	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
)

// firstAddition is the lowest field number of our own; the fact tables know nothing of fields from
// there on.
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

// tables are the fact tables, their sizes, where their messages are defined, and the methods that
// are ours.
var tables = []struct {
	file              string
	methods, messages int
	desc              *grpc.ServiceDesc
	files             []protoreflect.FileDescriptor
	// pkg is the prefix of the messages' names.
	pkg string
	own []string
}{
	{file: "process-manager.json", methods: 8, messages: 12, desc: &imrpc.ProcessManagerService_ServiceDesc,
		files: []protoreflect.FileDescriptor{imrpc.File_imrpc_process_proto}},
	{file: "proxy-engine.json", methods: 40, messages: 50, desc: &imrpc.ProxyEngineService_ServiceDesc,
		files: []protoreflect.FileDescriptor{imrpc.File_imrpc_proxy_proto}, pkg: "imrpc.",
		own: []string{"Ping", "BackupVolumeList", "BackupVolumeGet", "BackupGet", "BackupConfigMetaGet", "BackupRemove"}},
	{file: "instance.json", methods: 16, messages: 24, desc: &imrpc.InstanceService_ServiceDesc,
		files: []protoreflect.FileDescriptor{imrpc.File_imrpc_instance_proto}, pkg: "imrpc."},
	{file: "engine-messages.json", messages: 17, files: []protoreflect.FileDescriptor{ptypes.File_ptypes_engine_proto},
		pkg: "ptypes."},
}

func readFacts(t *testing.T, file string) facts {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var f facts
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestMethods: the path of each method is /<service>/<name>, with the message types of the table.
func TestMethods(t *testing.T) {
	for _, table := range tables {
		f := readFacts(t, table.file)
		if len(f.Methods) != table.methods || len(f.Messages) != table.messages {
			t.Errorf("%s has %d methods and %d messages, want %d and %d", table.file, len(f.Methods), len(f.Messages),
				table.methods, table.messages)
		}
		if table.desc == nil {
			continue
		}
		service := table.files[0].Services().Get(0)
		if string(service.FullName()) != f.Service || table.desc.ServiceName != f.Service {
			t.Errorf("service %s, want %s", service.FullName(), f.Service)
		}
		if got := service.Methods().Len(); got != len(f.Methods)+len(table.own) {
			t.Errorf("%s: %d methods, want %d and %d of our own", f.Service, got, len(f.Methods), len(table.own))
		}
		for _, own := range table.own {
			if service.Methods().ByName(protoreflect.Name(own)) == nil {
				t.Errorf("%s: method %s is missing", f.Service, own)
			}
		}
		for _, want := range f.Methods {
			m := service.Methods().ByName(protoreflect.Name(want.Name))
			if m == nil {
				t.Errorf("%s: method %s is missing", f.Service, want.Name)
				continue
			}
			if string(m.Input().Name()) != want.Request || string(m.Output().Name()) != want.Response ||
				m.IsStreamingServer() != want.ServerStream || m.IsStreamingClient() {
				t.Errorf("%s: %s -> %s (stream %v)", want.Name, m.Input().Name(), m.Output().Name(), m.IsStreamingServer())
			}
		}
	}
}

// TestMessages: every field of the tables exists with its number, name and type, and nothing else
// below firstAddition.
func TestMessages(t *testing.T) {
	for _, table := range tables {
		for name, fields := range readFacts(t, table.file).Messages {
			var m protoreflect.MessageDescriptor
			for _, file := range table.files {
				if m = file.Messages().ByName(protoreflect.Name(name)); m != nil {
					break
				}
			}
			if m == nil {
				t.Errorf("message %s is missing", name)
				continue
			}
			if m.FullName() != protoreflect.FullName(table.pkg+name) {
				t.Errorf("message %s is called %s", name, m.FullName())
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
}

// TestOwnMessagesUseOwnNumbers: a message that the reference does not know has no field below
// firstAddition.
func TestOwnMessagesUseOwnNumbers(t *testing.T) {
	own := 0
	for _, table := range tables {
		known := readFacts(t, table.file).Messages
		for _, file := range table.files {
			for i := range file.Messages().Len() {
				m := file.Messages().Get(i)
				if _, ok := known[string(m.Name())]; ok || !strings.HasPrefix(string(m.FullName()), table.pkg) {
					continue
				}
				own++
				for j := range m.Fields().Len() {
					if f := m.Fields().Get(j); f.Number() < firstAddition {
						t.Errorf("%s.%s has number %d, want %d or more", m.Name(), f.Name(), f.Number(), firstAddition)
					}
				}
			}
		}
	}
	if own != 2 {
		t.Errorf("%d messages of our own, want the 2 of the backup store", own)
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
	case f.Enum() != nil:
		return string(f.Enum().Name())
	case f.IsList():
		return "repeated " + f.Kind().String()
	}
	return f.Kind().String()
}
