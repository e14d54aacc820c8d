import { fileDesc } from "@bufbuild/protobuf/codegenv2";

/**
 * Stands in for gen/ts/buf/validate/validate_pb in the build (vite.config.ts): a
 * file of that name without its messages. The rules of fields are the server's to
 * check, and their definitions would be a tenth of the page.
 */
export const file_buf_validate_validate = /*@__PURE__*/ fileDesc("ChtidWYvdmFsaWRhdGUvdmFsaWRhdGUucHJvdG8SDGJ1Zi52YWxpZGF0ZQ");
