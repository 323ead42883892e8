package bimrpc_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"ankole.storage/api/rpc/bimrpc"
)

// methods and messages are what clients of the reference know: names, numbers and types.
const methods = `Delete DeleteRequest Empty
Get GetRequest BackingImageResponse
List Empty ListResponse
VersionGet Empty VersionResponse
Sync SyncRequest BackingImageResponse
Send SendRequest Empty
Fetch FetchRequest BackingImageResponse
PrepareDownload PrepareDownloadRequest PrepareDownloadResponse
BackupCreate BackupCreateRequest Empty
BackupStatus BackupStatusRequest BackupStatusResponse
Watch Empty Empty stream`

const messages = `BackingImageSpec 1:name string; 2:uuid string; 3:size int64; 4:checksum string; 5:virtualSize int64; ` +
	`6:realSize int64
BackingImageStatus 1:state string; 2:error_msg string; 3:sending_reference int32; 4:sender_manager_address string; ` +
	`5:progress int32; 6:checksum string
BackingImageResponse 1:spec BackingImageSpec; 2:status BackingImageStatus
DeleteRequest 1:name string; 2:uuid string
GetRequest 1:name string; 2:uuid string
ListResponse 1:backing_images map<string,BackingImageResponse>
VersionResponse 1:version string; 2:gitCommit string; 3:buildDate string; 4:backing_image_manager_api_version int64; ` +
	`5:backing_image_manager_api_min_version int64
SyncRequest 1:spec BackingImageSpec; 2:from_address string
SendRequest 1:name string; 2:uuid string; 3:to_address string
FetchRequest 1:spec BackingImageSpec; 2:data_source_address string
PrepareDownloadRequest 1:name string; 2:uuid string
PrepareDownloadResponse 1:src_file_path string; 2:address string
BackupCreateRequest 1:name string; 2:uuid string; 3:checksum string; 4:backup_target string; ` +
	`5:labels repeated string; ` +
	`6:credential map<string,string>; 7:compression_method string; 8:concurrent_limit int32; ` +
	`9:parameters map<string,string>
BackupStatusRequest 1:name string
BackupStatusResponse 1:progress int32; 2:backup_url string; 3:error string; 4:state string`

// firstAddition is the lowest field number of our own.
const firstAddition = 1000

// TestMethods: the path of each method is /bimrpc.BackingImageManagerService/<name>.
func TestMethods(t *testing.T) {
	t.Parallel()
	service := bimrpc.File_bimrpc_bimrpc_proto.Services().Get(0)
	if name := service.FullName(); name != "bimrpc.BackingImageManagerService" {
		t.Errorf("service %s", name)
	}
	var got []string
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		line := fmt.Sprintf("%s %s %s", m.Name(), m.Input().Name(), m.Output().Name())
		if m.IsStreamingServer() {
			line += " stream"
		}
		got = append(got, line)
	}
	if strings.Join(got, "\n") != methods {
		t.Errorf("methods:\n%s", strings.Join(got, "\n"))
	}
}

// TestMessages: every field has its number, name and type, and there is no other one below
// firstAddition.
func TestMessages(t *testing.T) {
	t.Parallel()
	var got []string
	all := bimrpc.File_bimrpc_bimrpc_proto.Messages()
	for i := range all.Len() {
		var fields []string
		for j := range all.Get(i).Fields().Len() {
			if f := all.Get(i).Fields().Get(j); f.Number() < firstAddition {
				fields = append(fields, fmt.Sprintf("%d:%s %s", f.Number(), f.Name(), typeOf(f)))
			}
		}
		got = append(got, string(all.Get(i).Name())+" "+strings.Join(fields, "; "))
	}
	if strings.Join(got, "\n") != messages {
		t.Errorf("messages:\n%s", strings.Join(got, "\n"))
	}
}

func typeOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map<" + typeOf(f.MapKey()) + "," + typeOf(f.MapValue()) + ">"
	case f.Message() != nil:
		return string(f.Message().Name())
	case f.IsList():
		return "repeated " + f.Kind().String()
	}
	return f.Kind().String()
}
